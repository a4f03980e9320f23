package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

// settings are the numbers of the demonstration, and what it measures.
type settings struct {
	ttl                   time.Duration
	afterStop, afterCrash time.Duration
}

// names are the names of the instances.
var names = []string{"a", "b", "c", "d"}

// slowRequest is the duration of the request that the first leader is serving when it is stopped.
// The next leader does not wait for its end.
const slowRequest = 1500 * time.Millisecond

// busyMachine is how late a takeover after a crash may be.
const busyMachine = time.Second

// run plays both parts and returns one line about their results.
func (s *settings) run(stage *fleet.Stage) (proof string, err error) {
	unlocked, err := s.play(stage, "no lock: every instance is the leader", s.everyoneLeads, "-without-lock")
	if err != nil {
		return "", fmt.Errorf("no lock: %w", err)
	}
	if unlocked < len(names) {
		return "", fmt.Errorf("no lock: only %d changes of the leader: the instances did not compete", unlocked)
	}
	changes, err := s.play(stage, "Campaign", s.oneLeads, "-ttl", s.ttl.String())
	if err != nil {
		return "", fmt.Errorf("with Campaign: %w", err)
	}
	if changes != len(names)-1 {
		return "", fmt.Errorf("with Campaign: the work of %d leaders changed hands %d times, want %d: two of them worked at the same time",
			len(names), changes, len(names)-1)
	}
	return fmt.Sprintf("%d instances, one leader at a time: takeover %.0f ms after a stop, %.1f s after a crash (TTL %v); the work of a suspended leader was cancelled (without the lock: %d leaders at the same time)",
		len(names), float64(s.afterStop.Microseconds())/1000, s.afterCrash.Seconds(), s.ttl, len(names)), nil
}

// play starts all instances, and returns how often the leader changed: how many pieces of work were
// done by another leader than the piece before.
func (s *settings) play(stage *fleet.Stage, title string, lead func(ctx context.Context, f *fleet.Fleet, db *sql.DB), args ...string) (changes int, err error) {
	f := stage.Part(title)
	defer f.Close()
	db, data, err := stage.Database("CREATE TABLE work (id INTEGER PRIMARY KEY, leader TEXT NOT NULL)")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	for _, name := range names {
		f.Start(name, append([]string{"-host", name, "-data", data}, args...)...)
	}
	lead(stage.Ctx, f, db)
	f.Do(func() error {
		return db.QueryRowContext(stage.Ctx, `
			SELECT count(*) FROM (SELECT leader, lag(leader) OVER (ORDER BY id) AS previous FROM work)
			WHERE leader != previous`).Scan(&changes)
	})
	if f.Err() == nil {
		fmt.Fprintf(stage.Out, "   => %d changes between %d leaders\n", changes, len(names))
	}
	return changes, f.Err()
}

// awaitWork waits until a leader has done some work.
func awaitWork(ctx context.Context, db *sql.DB, leader string) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var n int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM work WHERE leader = ?", leader).Scan(&n); err != nil {
			return err
		}
		if n >= 5 {
			return nil
		}
	}
	return fmt.Errorf("%s leads and does not work", leader)
}

// everyoneLeads waits until all instances have worked without an election.
func (s *settings) everyoneLeads(ctx context.Context, f *fleet.Fleet, db *sql.DB) {
	for _, name := range names {
		f.Do(func() error { return awaitWork(ctx, db, name) })
	}
	for _, name := range names {
		f.Finish(name)
	}
}

// oneLeads ends the leadership three times, each time in another way.
func (s *settings) oneLeads(ctx context.Context, f *fleet.Fleet, db *sql.DB) {
	addrs := make(map[string]string)
	for _, name := range names {
		addrs[name] = f.Await(name, "listening on ")
	}
	first := f.AwaitAny("leading")
	f.Do(func() error { return awaitWork(ctx, db, first) })

	// Stop the leader as a deployment does, while it works on a request.
	reply := make(chan error, 1)
	go func() { reply <- get("http://" + addrs[first] + "/leader?after=" + slowRequest.String()) }()
	f.Await(first, "works on a request")
	start := time.Now()
	f.Terminate(first)
	second := f.AwaitAny("leading")
	s.afterStop = time.Since(start)
	f.Do(func() error { return <-reply })
	f.AwaitEnd(first)
	f.Do(func() error {
		if s.afterStop >= slowRequest {
			return fmt.Errorf("takeover %v after a stop: the next leader waited for the requests of the one before", s.afterStop)
		}
		return awaitWork(ctx, db, second)
	})

	// Crash the leader. The next leader waits after its first piece of work, and is suspended
	// there.
	followers := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == first || name == second })
	for _, name := range followers {
		f.Tell(name, "wait")
	}
	start = time.Now()
	f.Kill(second)
	third := f.AwaitAny("leading")
	s.afterCrash = time.Since(start)
	f.Do(func() error {
		if s.afterCrash > s.ttl+busyMachine {
			return fmt.Errorf("takeover %v after a crash, later than the TTL of %v", s.afterCrash, s.ttl)
		}
		return nil
	})

	// Pause the leader for longer than the TTL.
	f.Await(third, "waits")
	f.Suspend(third)
	fourth := followers[0]
	if fourth == third {
		fourth = followers[1]
	}
	f.Tell(fourth, "go on")
	f.Await(fourth, "leading")
	f.Do(func() error { return awaitWork(ctx, db, fourth) })
	f.Resume(third)
	f.Await(third, "stopped working: ")
	f.Finish(third)
	f.Finish(fourth)
}

// get sends a GET request, and returns an error unless it succeeds.
func get(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return nil
}
