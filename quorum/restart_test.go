package quorum_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A server is a node that knows when it restarted.
type server struct {
	*gate
	connections uint64
	id          string
	uptime      time.Duration
	ahead       time.Duration // of its clock
	jumped      time.Time     // when its clock was set ahead
}

func (s *server) Connections() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

func (s *server) Server(ctx context.Context) (server quorum.Server, err error) {
	if err := s.pass(ctx, "Server", func(store.Store) error { return nil }); err != nil {
		return server, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	server = quorum.Server{ID: s.id, Uptime: s.uptime, Clock: time.Now().Add(s.ahead)}
	if !s.jumped.IsZero() {
		server.Jumped = time.Since(s.jumped) + 1
	}
	return server, nil
}

// change changes the server, and the client notices it.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
	f()
}

func (s *server) setClock() { s.change(func() { s.jumped = time.Now() }) }

func (s *server) restart(id string, uptime time.Duration) {
	s.change(func() { s.id, s.uptime = id, uptime })
}

// serverNodes returns three servers that have been up for that long, and a quorum of them. The clocks of
// the first ones may be ahead.
func serverNodes(t *testing.T, uptime time.Duration, opts quorum.Options, ahead ...time.Duration) ([]*server, *quorum.Store) {
	t.Helper()
	all := hosts(3)
	for i, s := range all {
		s.features, s.uptime = 0, uptime
		if i < len(ahead) {
			s.ahead = ahead[i]
		}
	}
	return all, openQuorum(t, named(all), opts)
}

// granted reports whether a new request is granted, and ends it.
func granted(t *testing.T, q *quorum.Store) bool {
	t.Helper()
	req := request("probe")
	a, err := q.Acquire(t.Context(), req)
	q.Leave(t.Context(), "probe", req.ID)
	synctest.Wait()
	return err == nil && a.Granted()
}

func wantGranted(t *testing.T, q *quorum.Store, want bool, when string) {
	t.Helper()
	if got := granted(t, q); got != want {
		t.Errorf("granted: %t, want %t: %s", got, want, when)
	}
}

// Another client may use the default TTL, and clocks drift. The longest delays are not off.
func TestRestartDelayIncludesTheDrift(t *testing.T) {
	for _, delay := range []time.Duration{0, math.MaxInt64, math.MaxInt64 / 101 * 100} {
		synctest.Test(t, func(t *testing.T) {
			_, q := serverNodes(t, quorum.DefaultRestartDelay, quorum.Options{RestartDelay: delay})
			wantGranted(t, q, false, "by nodes that may have forgotten a lease")
			time.Sleep(quorum.DefaultRestartDelay / 50)
			wantGranted(t, q, delay == 0, "after the default delay")
		})
	}
}

func TestNodeDoesNotCountBeforeTheLargestTTLInUseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := serverNodes(t, time.Minute, quorum.Options{})
		nodes[0].set(down, nil)
		wantGranted(t, q, true, "after a minute")
		long := request("long")
		long.TTL = 5 * time.Minute
		mustFail(t, q, long) // by nodes that may have forgotten a lease of five minutes
		q.Leave(t.Context(), "long", long.ID)
		time.Sleep(5 * time.Minute)
		mustAcquire(t, q, long)
		long.TTL = time.Hour
		mustRenew(t, q, long)
		wantGranted(t, q, false, "by nodes that may have forgotten a lease of an hour")
	})
}

// A machine that boots may set its clock after the server has started, which makes the server seem older
// than it is. But it did not start before the last reply of the server before it.
func TestNodeThatRestartedCountsWhenItsUptimeIsSure(t *testing.T) {
	for idle, want := range map[time.Duration]bool{0: false, time.Hour: true} {
		run(t, fmt.Sprint("the client was idle for ", idle), func(t *testing.T) {
			nodes, q := serverNodes(t, time.Hour, quorum.Options{})
			wantGranted(t, q, true, "at first")
			time.Sleep(idle)
			nodes[0].set(down, nil)
			nodes[1].restart("new", time.Hour/2)
			suites.Leave(t, q, request("n")) // a reply of the new server
			wantGranted(t, q, want, "after the restart")
			time.Sleep(31 * time.Second)
			nodes[1].restart("new", time.Hour/2+31*time.Second) // a new connection to the same server
			wantGranted(t, q, true, "after the delay")
		})
	}
}

// The address of a node leads to the server of another node, until one of them gets the server that is left.
func TestServerThatIsTwoNodesForAWhileHasOneVote(t *testing.T) {
	for moved := range 2 {
		run(t, fmt.Sprintf("node %d moves", moved), func(t *testing.T) {
			nodes, q := serverNodes(t, time.Hour, quorum.Options{})
			nodes[1].restart("run0", time.Hour)
			granted(t, q)
			time.Sleep(time.Minute)
			nodes[0].restart("run0", time.Hour) // a new connection
			wantGranted(t, q, true, "two servers answer")
			time.Sleep(time.Minute)
			nodes[2].set(down, nil)
			wantGranted(t, q, false, "two votes of one server")
			time.Sleep(time.Minute)
			nodes[2].set(nil, nil)
			nodes[moved].restart("run1", time.Hour)
			for range 2 { // the first attempt may end before the moved node replies
				granted(t, q)
				time.Sleep(time.Minute)
			}
			nodes[2].set(down, nil)
			wantGranted(t, q, true, "two servers answer")
		})
	}
}

// The address of a node leads to the server of another node, before or after a lease was granted.
func TestLeaseIsNotRenewedByOneServerThatIsTwoNodes(t *testing.T) {
	for _, before := range []bool{true, false} {
		run(t, fmt.Sprint("before=", before), func(t *testing.T) {
			nodes, q := serverNodes(t, time.Hour, quorum.Options{})
			move := func() { nodes[1].restart("run2", time.Hour) }
			if before {
				move()
			}
			req := lease(t, q)
			if !before {
				move()
			}
			nodes[0].set(down, nil)
			nodes[1].set(only(down, "Server"), nil) // so its server is unknown
			renew(t, q, req, store.Unknown)
			setAll(nodes, nil, nil)
			mustRenew(t, q, req)
			nodes[0].set(down, nil)
			renew(t, q, req, store.Unknown)
		})
	}
}

// The address of a node leads to the server of another node when its counter has to be raised. A third node has
// voted for another request.
func TestCounterOfAServerThatIsTwoNodesIsRaisedForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := serverNodes(t, time.Hour, quorum.Options{})
		granted(t, q)
		count(t, nodes[1].gate, 1000)
		mustAcquire(t, nodes[2].Store, request("n"))
		move := func(context.Context, string) error { nodes[0].restart("run1", time.Hour); return nil }
		nodes[0].set(only(move, "Renew"), nil)
		mustRefuse(t, q, request("n"))
	})
}

func TestNodeWhoseClockWasSetDoesNotCountBeforeTheLargestTTLIsOver(t *testing.T) {
	for _, delay := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			nodes, q := serverNodes(t, time.Hour, quorum.Options{RestartDelay: delay})
			nodes[0].set(down, nil)
			wantGranted(t, q, true, "by two of three nodes")
			nodes[1].setClock()
			wantGranted(t, q, false, "with the vote of a node whose clock was set")
			time.Sleep(quorum.DefaultRestartDelay * 102 / 100)
			wantGranted(t, q, true, "after all older leases have ended")
		})
	}
}

// While a host is suspended, its monotonic clock may stand still. All other clocks seem to jump then.
func TestNodesCountAfterTheHostOfTheClientWasSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := serverNodes(t, time.Hour, quorum.Options{})
		wantGranted(t, q, true, "at first")
		for _, n := range nodes {
			n.setClock()
			time.Sleep(100 * time.Millisecond)
		}
		granted(t, q) // it sees the jumps one after the other
		wantGranted(t, q, true, "after the clocks of all nodes have jumped together")
	})
}

// A client that has just started does not know whether the clock was set a moment ago.
func TestNodeWhoseClockIsFarAheadDoesNotCountAtFirst(t *testing.T) {
	for ahead, want := range map[time.Duration]bool{time.Minute: false, -time.Minute: true, time.Second / 2: true} {
		run(t, fmt.Sprint(ahead), func(t *testing.T) {
			nodes, q := serverNodes(t, time.Hour, quorum.Options{}, 0, ahead)
			nodes[0].set(down, nil)
			wantGranted(t, q, want, "at first")
			time.Sleep(quorum.DefaultRestartDelay * 102 / 100)
			wantGranted(t, q, true, "after all older leases have ended")
		})
	}
}
