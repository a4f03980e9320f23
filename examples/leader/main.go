// Leader is a server with four instances. One of them, the leader, works in the background. Another takes
// over at once when the leader is stopped, and within the TTL when it crashes. When the leader is suspended
// and wakes up, its work is cancelled. Copy server.go.
package main

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

var example = fleet.Example{Name: "leader", Instance: instance, Play: play}

func main() { example.Main() }

// instance runs the server until the process is asked to end. An order lets its work wait for the next one.
func instance(i *fleet.Instance) error {
	s, sleep := &server{locks: i.Locks, db: i.DB}, rest
	rest = func() {
		select {
		case <-i.Orders:
			i.Stop("after a piece of work")
		default:
		}
		sleep()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	return s.run(i.Ctx, listener)
}

// play ends the leadership three times, each time in another way.
func play(s *fleet.Stage) (proof string) {
	s.Part("Campaign", "CREATE TABLE work (id INTEGER PRIMARY KEY, leader TEXT NOT NULL)")
	s.TTL = fleet.Short
	names := []string{"a", "b", "c", "d"}
	urls := make(map[string]string)
	for _, name := range names {
		s.Ready(name)
		s.Tell("start", name)
		urls[name] = s.Await("listening on ", name).Text
	}
	works := func(name string) {
		s.Until(name+" works", func() bool { return s.Int("SELECT count(*) FROM work WHERE leader = ?", name) >= 5 })
	}
	first := s.Await("leading").Name
	works(first)

	// Stop the leader as a deployment does, while it works on a request that takes longer than the takeover.
	const slowRequest = 1500 * time.Millisecond
	reply := make(chan error, 1)
	go func() {
		resp, err := http.Get(urls[first] + "/leader?after=" + slowRequest.String())
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Request.URL, resp.Status)
		}
		reply <- err
	}()
	s.Await("works on a request", first)
	begin := time.Now()
	s.Terminate(first)
	second := s.Await("leading").Name
	afterStop := time.Since(begin)
	s.Want(afterStop < slowRequest, "takeover %v after a stop: the next leader waited for the requests of the one before", afterStop)
	must.OK(<-reply)
	s.AwaitEnd(first)
	works(second)

	// Crash the leader. The next leader waits after its first piece of work, and is suspended there.
	followers := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == first || name == second })
	s.Tell("wait", followers...)
	begin = time.Now()
	s.Kill(second)
	third := s.Await("leading").Name
	afterCrash := time.Since(begin)
	s.Want(afterCrash < fleet.Short+time.Second, "takeover %v after a crash, later than the TTL of %v", afterCrash, fleet.Short)

	// Pause the leader for longer than the TTL.
	s.Suspend(third, "after a piece of work")
	fourth := s.Await("leading").Name
	s.Tell("go on", fourth)
	works(fourth)
	s.Resume(third)
	s.Await("stopped working: ", third)
	s.Terminate(third)
	s.Terminate(fourth)
	s.AwaitEnd(third, fourth)
	changes := s.Int(`
		SELECT count(*) FROM (SELECT leader, lag(leader) OVER (ORDER BY id) AS previous FROM work)
		WHERE leader != previous`)
	s.Want(changes == 3, "the work of 4 leaders changed hands %d times, want 3: two of them worked at the same time", changes)
	return fmt.Sprintf("4 instances, one leader at a time: takeover %.0f ms after a stop, %.1f s after a crash (TTL %v); the work of a suspended leader was cancelled",
		float64(afterStop.Microseconds())/1000, afterCrash.Seconds(), fleet.Short)
}
