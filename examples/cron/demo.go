package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

// settings are the numbers of the demonstration.
type settings struct {
	ticks  int
	period time.Duration
	ttl    time.Duration
}

// hosts have clocks that differ by three periods. The offsets are in periods.
var hosts = []struct {
	name   string
	offset float64
}{{"a", 0}, {"b", 0.4}, {"c", -0.4}, {"d", 1.7}, {"e", -1.3}}

// unlockedTicks is a number of ticks that is enough to show what happens without the lock.
const unlockedTicks = 3

// run plays both parts and returns one line about their results.
func (s *settings) run(stage *fleet.Stage) (proof string, err error) {
	unlocked, err := s.play(stage, "no lock: the same crontab on every host", unlockedTicks, true)
	if err != nil {
		return "", fmt.Errorf("no lock: %w", err)
	}
	if unlocked.runs <= unlockedTicks {
		return "", fmt.Errorf("no lock: %d runs of %d ticks: the hosts did not compete", unlocked.runs, unlockedTicks)
	}
	r, err := s.play(stage, "Once for every tick, and the host that is running the job is killed in the middle", s.ticks, false)
	if err != nil {
		return "", fmt.Errorf("with Once: %w", err)
	}
	if r.runs != s.ticks || r.ticks != s.ticks {
		return "", fmt.Errorf("with Once: %d runs of %d ticks, want one run for each of %d", r.runs, r.ticks, s.ticks)
	}
	return fmt.Sprintf("%d ticks, %d hosts with clocks up to %v apart, 1 killed: %d runs, one for each tick (without the lock: %d runs for %d ticks)",
		s.ticks, len(hosts), 3*s.period, r.runs, unlocked.runs, unlockedTicks), nil
}

// A result is what the job has recorded.
type result struct {
	runs  int
	ticks int // that were run
}

// play runs all hosts, and returns what they did in a number of ticks.
func (s *settings) play(stage *fleet.Stage, title string, ticks int, unlocked bool) (r result, err error) {
	f := stage.Part(title)
	defer f.Close()
	db, data, err := stage.Database("CREATE TABLE runs (tick INTEGER NOT NULL, host TEXT NOT NULL)")
	if err != nil {
		return r, err
	}
	defer db.Close()
	for _, host := range hosts {
		offset := time.Duration(host.offset * float64(s.period))
		args := []string{
			"-host", host.name, "-data", data, "-offset", offset.String(), "-period", s.period.String(),
			"-ttl", s.ttl.String(), "-crash", filepath.Join(stage.Folder, "crash"),
		}
		if unlocked {
			args = append(args, "-without-lock")
		}
		f.Start(host.name, args...)
	}
	for _, host := range hosts {
		f.Await(host.name, "ready")
	}

	// No clock has reached the first tick when the hosts begin.
	first := time.Now().Add(time.Second + 2*s.period).Truncate(s.period).Add(s.period)
	tick := func(i int) int64 { return first.Add(time.Duration(i) * s.period).UnixMilli() }
	crashAt := int64(0)
	if !unlocked {
		crashAt = tick(ticks / 2)
	}
	for _, host := range hosts {
		f.Tell(host.name, fmt.Sprintf("last %d crash %d", tick(ticks-1), crashAt))
	}
	killed := ""
	if !unlocked {
		killed = f.AwaitAny("hangs")
		f.Kill(killed)
	}
	for _, host := range hosts {
		if host.name != killed {
			f.Await(host.name, "closed")
			f.Finish(host.name)
		}
	}
	f.Do(func() error {
		return db.QueryRowContext(stage.Ctx, "SELECT count(*), count(DISTINCT tick) FROM runs WHERE tick BETWEEN ? AND ?", tick(0), tick(ticks-1)).Scan(&r.runs, &r.ticks)
	})
	fmt.Fprintf(stage.Out, "   => %d ticks, %d runs\n", r.ticks, r.runs)
	return r, f.Err()
}
