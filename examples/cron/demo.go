package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

// settings are the numbers of the demonstration.
type settings struct {
	store  string // URL; empty for a temporary SQLite file
	ticks  int
	period time.Duration
	ttl    time.Duration
}

// demo defines the flags of the demonstration, and returns the function that runs it on a store.
func demo() fleet.Demo {
	var s settings
	flag.IntVar(&s.ticks, "ticks", 20, "how many ticks to wait for")
	flag.DurationVar(&s.period, "period", time.Second, "time between two ticks")
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long others wait after a crash")
	return func(ctx context.Context, store string) (proof string, err error) {
		s.store = store
		return run(ctx, os.Stdout, s)
	}
}

// hosts have clocks that differ by three periods. The offsets are in periods.
var hosts = []struct {
	name   string
	offset float64
}{{"a", 0}, {"b", 0.4}, {"c", -0.4}, {"d", 1.7}, {"e", -1.3}}

// unlockedTicks is a number of ticks that is enough to show what happens without the lock.
const unlockedTicks = 3

// run plays both scenarios and returns one line about their results.
func run(ctx context.Context, out io.Writer, s settings) (proof string, err error) {
	folder, err := os.MkdirTemp("", "cron-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if s.store == "" {
		s.store = "sqlite:" + filepath.Join(folder, "locks.db")
	}

	fmt.Fprintln(out, "\n1. no lock: the same crontab on every host")
	unlocked, err := play(ctx, out, s, folder, unlockedTicks, true)
	if err != nil {
		return "", fmt.Errorf("no lock: %w", err)
	}
	if unlocked.runs <= unlockedTicks {
		return "", fmt.Errorf("no lock: %d runs of %d ticks: the hosts did not compete", unlocked.runs, unlockedTicks)
	}

	fmt.Fprintln(out, "\n2. Once for every tick, and the host that is running the job is killed in the middle")
	r, err := play(ctx, out, s, folder, s.ticks, false)
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
func play(ctx context.Context, out io.Writer, s settings, folder string, ticks int, unlocked bool) (r result, err error) {
	data := filepath.Join(folder, fmt.Sprintf("runs-%v.db", unlocked))
	db, err := openDatabase(data)
	if err != nil {
		return r, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE runs (tick INTEGER NOT NULL, host TEXT NOT NULL)"); err != nil {
		return r, err
	}

	f := fleet.New(ctx, out, "HOLDFAST_STORE="+s.store)
	defer f.Close()
	for _, host := range hosts {
		offset := time.Duration(host.offset * float64(s.period))
		args := []string{
			"-host", host.name, "-data", data, "-offset", offset.String(), "-period", s.period.String(),
			"-ttl", s.ttl.String(), "-crash", filepath.Join(folder, "crash"),
		}
		if unlocked {
			args = append(args, "-without-lock")
		}
		if err := f.Start(host.name, args...); err != nil {
			return r, err
		}
	}
	for _, host := range hosts {
		if _, err := f.Await(host.name, "ready"); err != nil {
			return r, err
		}
	}

	// No clock has reached the first tick when the hosts begin.
	first := time.Now().Add(time.Second + 2*s.period).Truncate(s.period).Add(s.period)
	tick := func(i int) int64 { return first.Add(time.Duration(i) * s.period).UnixMilli() }
	crashAt := int64(0)
	if !unlocked {
		crashAt = tick(ticks / 2)
	}
	for _, host := range hosts {
		if err := f.Tell(host.name, fmt.Sprintf("last %d crash %d", tick(ticks-1), crashAt)); err != nil {
			return r, err
		}
	}
	killed := ""
	if !unlocked {
		if killed, err = f.AwaitAny("hangs"); err != nil {
			return r, err
		}
		if err := f.Kill(killed); err != nil {
			return r, err
		}
		fmt.Fprintf(out, "   %s  killed\n", killed)
	}
	for _, host := range hosts {
		if host.name == killed {
			continue
		}
		if _, err := f.Await(host.name, "closed"); err != nil {
			return r, err
		}
		if err := f.Finish(host.name); err != nil {
			return r, err
		}
	}

	err = db.QueryRowContext(ctx, "SELECT count(*), count(DISTINCT tick) FROM runs WHERE tick BETWEEN ? AND ?", tick(0), tick(ticks-1)).Scan(&r.runs, &r.ticks)
	fmt.Fprintf(out, "   => %d ticks, %d runs\n", r.ticks, r.runs)
	return r, err
}
