// Cron runs the same job on five hosts (here: processes), whose clocks differ. Exactly one host completes
// the job of each tick, even when the host that is running it dies. Copy scheduler.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

var example = fleet.Example{Name: "cron", Instance: instance, Play: play}

func main() { example.Main() }

var period = time.Second // between two ticks

const ticks = 20

var hosts = []string{"a", "b", "c", "d", "e"}

// offsets are how far the clocks of the hosts are ahead, in periods.
var offsets = []float64{0, 0.4, -0.4, 1.7, -1.3}

// instance is a host. Its arguments are its offset, the period, the last tick, and the tick in which it hangs.
func instance(i *fleet.Instance) error {
	var offset time.Duration
	var last, crash int64
	if _, err := fmt.Sscan(strings.Join(i.Args, " "), &offset, &period, &last, &crash); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(i.Ctx)
	defer cancel()
	s := &scheduler{locks: i.Locks, name: "report", period: period, now: func() time.Time { return time.Now().Add(offset) }}
	if i.Is("unlocked") {
		s.locks = nil
	}
	s.job = func(ctx context.Context, tick time.Time) error {
		if tick.UnixMilli() == crash {
			// Only the first host hangs: the one that runs the tick instead does not.
			if _, err := i.DB.ExecContext(ctx, "INSERT INTO crash VALUES (1)"); err == nil {
				i.Stop("in the middle of a tick")
			}
		}
		_, err := i.DB.ExecContext(ctx, "INSERT INTO runs VALUES (?, ?)", tick.UnixMilli(), i.Name)
		return err
	}
	s.log = func(tick time.Time, err error) {
		switch {
		case err == nil:
			fmt.Println("ran tick", tick.Format("15:04:05.0"))
		case !errors.Is(err, holdfast.ErrDone): // another host ran it
			fmt.Println("tick", tick.Format("15:04:05.0"), "failed:", err)
		}
		if tick.UnixMilli() >= last { // later, if the machine is so busy that the host began late
			cancel()
		}
	}
	if err := s.run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// play counts the runs of all hosts, without the lock and with it.
func play(s *fleet.Stage) (proof string) {
	s.Part("no lock: the same crontab on every host", schema)
	const few = 3
	unlocked, _ := runs(s, few, false)
	s.Want(unlocked > few, "%d runs of %d ticks: the hosts did not compete", unlocked, few)

	s.Part("Once for every tick, and the host that is running the job is killed in the middle", schema)
	s.TTL = fleet.Short
	all, different := runs(s, ticks, true)
	s.Want(all == ticks && different == ticks, "%d runs of %d ticks, want one run for each of %d", all, different, ticks)
	return fmt.Sprintf("%d ticks, %d hosts with clocks up to %v apart, 1 killed: %d runs, one for each tick (without the lock: %d runs for %d ticks)",
		ticks, len(hosts), 3*period, all, unlocked, few)
}

const schema = "CREATE TABLE runs (tick INTEGER NOT NULL, host TEXT NOT NULL); CREATE TABLE crash (id INTEGER PRIMARY KEY)"

// runs lets all hosts run n ticks. It returns how many runs there were, and of how many ticks.
func runs(s *fleet.Stage, n int, locked bool) (all, different int) {
	// No clock has reached the first tick when the hosts begin.
	first := time.Now().Add(2*time.Second + 2*period).Truncate(period).Add(period)
	tick := func(i int) int64 { return first.Add(time.Duration(i) * period).UnixMilli() }
	mode, crash := "unlocked", int64(0)
	if locked {
		mode, crash = "locked", tick(n/2)
	}
	for i, host := range hosts {
		offset := int64(offsets[i] * float64(period))
		s.Ready(host, fmt.Sprint(offset), fmt.Sprint(int64(period)), fmt.Sprint(tick(n-1)), fmt.Sprint(crash), mode)
	}
	s.Tell("start", hosts...)
	left := hosts
	if locked {
		killed := s.Await("stopped in").Name
		s.Kill(killed)
		left = slices.DeleteFunc(slices.Clone(hosts), func(host string) bool { return host == killed })
	}
	s.AwaitEnd(left...)
	const where = " FROM runs WHERE tick BETWEEN ? AND ?"
	all, different = s.Int("SELECT count(*)"+where, tick(0), tick(n-1)), s.Int("SELECT count(DISTINCT tick)"+where, tick(0), tick(n-1))
	fmt.Fprintf(s.Out, "   => %d ticks, %d runs\n", different, all)
	return all, different
}
