package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
)

// settings are the numbers of the demonstration.
type settings struct {
	store string // URL; empty for a temporary SQLite file
	ttl   time.Duration
}

// demo defines the flags of the demonstration, and returns the function that runs it on a store.
func demo() fleet.Demo {
	var s settings
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long others wait after a crash")
	return func(ctx context.Context, store string) (proof string, err error) {
		s.store = store
		return run(ctx, os.Stdout, s)
	}
}

// names are the names of the instances.
var names = []string{"a", "b", "c", "d"}

// slowRequest is the duration of the request that the first leader is serving when it is stopped.
// The next leader does not wait for its end.
const slowRequest = 1500 * time.Millisecond

// busyMachine is how late a takeover after a crash may be.
const busyMachine = time.Second

// run plays both scenarios and returns one line about their results.
func run(ctx context.Context, out io.Writer, s settings) (proof string, err error) {
	folder, err := os.MkdirTemp("", "leader-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if s.store == "" {
		s.store = "sqlite:" + filepath.Join(folder, "locks.db")
	}
	e := &election{out: out, settings: s}

	fmt.Fprintln(out, "\n1. no lock: every instance is the leader")
	unlocked, err := e.everyoneLeads(ctx, filepath.Join(folder, "unlocked.db"))
	if err != nil {
		return "", fmt.Errorf("no lock: %w", err)
	}
	fmt.Fprintf(out, "   => %d changes between %d leaders\n", unlocked, len(names))
	if unlocked < len(names) {
		return "", fmt.Errorf("no lock: only %d changes of the leader: the instances did not compete", unlocked)
	}

	fmt.Fprintln(out, "\n2. Campaign")
	changes, err := e.oneLeads(ctx, filepath.Join(folder, "work.db"))
	if err != nil {
		return "", fmt.Errorf("with Campaign: %w", err)
	}
	fmt.Fprintf(out, "   => %d changes between %d leaders\n", changes, len(names))
	if changes != len(names)-1 {
		return "", fmt.Errorf("with Campaign: the work of %d leaders changed hands %d times, want %d: two of them worked at the same time",
			len(names), changes, len(names)-1)
	}
	return fmt.Sprintf("%d instances, one leader at a time: takeover %.0f ms after a stop, %.1f s after a crash (TTL %v); the work of a suspended leader was cancelled (without the lock: %d leaders at the same time)",
		len(names), float64(e.afterStop.Microseconds())/1000, e.afterCrash.Seconds(), s.ttl, len(names)), nil
}

// An election runs the instances and measures takeovers.
type election struct {
	out                   io.Writer
	settings              settings
	afterStop, afterCrash time.Duration
}

func createDatabase(ctx context.Context, path string) (*sql.DB, error) {
	db, err := openDatabase(path)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE work (id INTEGER PRIMARY KEY, leader TEXT NOT NULL)"); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := sqlfence.SQLite.CreateTable(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// changes counts the pieces of work that were done by another leader than the piece before.
func changes(ctx context.Context, db *sql.DB) (n int, err error) {
	err = db.QueryRowContext(ctx, `
		SELECT count(*) FROM (SELECT leader, lag(leader) OVER (ORDER BY id) AS previous FROM work)
		WHERE leader != previous`).Scan(&n)
	return n, err
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

// everyoneLeads runs all instances without an election. It returns how often the leader changed.
func (e *election) everyoneLeads(ctx context.Context, data string) (int, error) {
	db, err := createDatabase(ctx, data)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	f := fleet.New(ctx, e.out, "HOLDFAST_STORE="+e.settings.store)
	defer f.Close()
	for _, name := range names {
		if err := f.Start(name, "-host", name, "-data", data, "-without-lock"); err != nil {
			return 0, err
		}
	}
	for _, name := range names {
		if err := awaitWork(ctx, db, name); err != nil {
			return 0, err
		}
	}
	for _, name := range names {
		if err := f.Finish(name); err != nil {
			return 0, err
		}
	}
	return changes(ctx, db)
}

// oneLeads ends the leadership three times, each time in another way. It returns how often the
// leader changed.
func (e *election) oneLeads(ctx context.Context, data string) (int, error) {
	db, err := createDatabase(ctx, data)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	f := fleet.New(ctx, e.out, "HOLDFAST_STORE="+e.settings.store)
	defer f.Close()
	addrs := make(map[string]string)
	for _, name := range names {
		if err := f.Start(name, "-host", name, "-data", data, "-ttl", e.settings.ttl.String()); err != nil {
			return 0, err
		}
		if addrs[name], err = f.Await(name, "listening on "); err != nil {
			return 0, err
		}
	}
	// next waits for the next leader, and for some of its work.
	next := func() (string, error) {
		leader, err := f.AwaitAny("leading")
		if err != nil {
			return "", err
		}
		return leader, awaitWork(ctx, db, leader)
	}
	first, err := next()
	if err != nil {
		return 0, err
	}

	// Stop the leader as a deployment does, while it works on a request.
	reply := make(chan error, 1)
	go func() { reply <- get("http://" + addrs[first] + "/leader?after=" + slowRequest.String()) }()
	if _, err := f.Await(first, "works on a request"); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := f.Terminate(first); err != nil {
		return 0, err
	}
	fmt.Fprintf(e.out, "   %s  stopped (SIGTERM)\n", first)
	second, err := f.AwaitAny("leading")
	if err != nil {
		return 0, err
	}
	e.afterStop = time.Since(start)
	if err := errors.Join(<-reply, f.AwaitEnd(first)); err != nil {
		return 0, err
	}
	if e.afterStop >= slowRequest {
		return 0, fmt.Errorf("takeover %v after a stop: the next leader waited for the requests of the one before", e.afterStop)
	}
	if err := awaitWork(ctx, db, second); err != nil {
		return 0, err
	}

	// Crash the leader. The next leader waits after its first piece of work, and is suspended
	// there.
	followers := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == first || name == second })
	for _, name := range followers {
		if err := f.Tell(name, "wait"); err != nil {
			return 0, err
		}
	}
	start = time.Now()
	if err := f.Kill(second); err != nil {
		return 0, err
	}
	fmt.Fprintf(e.out, "   %s  killed (SIGKILL)\n", second)
	third, err := f.AwaitAny("leading")
	if err != nil {
		return 0, err
	}
	e.afterCrash = time.Since(start)
	if e.afterCrash > e.settings.ttl+busyMachine {
		return 0, fmt.Errorf("takeover %v after a crash, later than the TTL of %v", e.afterCrash, e.settings.ttl)
	}

	// Pause the leader for longer than the TTL.
	if _, err := f.Await(third, "waits"); err != nil {
		return 0, err
	}
	if err := f.Suspend(third); err != nil {
		return 0, err
	}
	fmt.Fprintf(e.out, "   %s  suspended (SIGSTOP)\n", third)
	fourth := followers[1-slices.Index(followers, third)]
	if err := f.Tell(fourth, "go on"); err != nil {
		return 0, err
	}
	if _, err := next(); err != nil {
		return 0, err
	}
	if err := f.Resume(third); err != nil {
		return 0, err
	}
	fmt.Fprintf(e.out, "   %s  wakes up (SIGCONT)\n", third)
	if _, err := f.Await(third, "stopped working: "); err != nil {
		return 0, err
	}
	for _, name := range []string{third, fourth} {
		if err := f.Finish(name); err != nil {
			return 0, err
		}
	}
	return changes(ctx, db)
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
