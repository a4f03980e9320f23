package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

// settings are the numbers of the demonstration.
type settings struct {
	requests int
	ttl      time.Duration // TTL in the parts with a crash
}

// A scenario is one crowd of requests to new instances with an empty table.
type scenario struct {
	title    string
	unlocked bool
	unique   bool
	stop     string // stop instance a before or after its INSERT
	kill     bool   // kill it there, instead of letting it continue when another has inserted
	check    func(rows int) error
}

func exactly(want int) func(int) error {
	return func(rows int) error {
		if rows != want {
			return fmt.Errorf("%d rows, want %d", rows, want)
		}
		return nil
	}
}

func severalRows(rows int) error {
	if rows < 2 {
		return fmt.Errorf("%d row without the lock: the requests did not compete", rows)
	}
	return nil
}

var scenarios = []scenario{
	{title: "no lock: look, then insert", unlocked: true, stop: "before", check: severalRows},
	{title: "Once, no unique index", check: exactly(1)},
	{title: "Once, no unique index, and an instance is killed while it holds the lock", stop: "before", kill: true, check: exactly(1)},
	{title: "Once, no unique index, and an instance is killed after its INSERT, before Once has noted it", stop: "after", kill: true, check: exactly(2)},
	{title: "Once and a unique index, and an instance is killed at the same point", stop: "after", kill: true, unique: true, check: exactly(1)},
}

// run plays all scenarios and returns one line about their results.
func (s *settings) run(stage *fleet.Stage) (proof string, err error) {
	rows := make([]int, len(scenarios))
	for i, sc := range scenarios {
		if rows[i], err = s.play(stage, sc); err != nil {
			return "", fmt.Errorf("%s: %w", sc.title, err)
		}
	}
	return fmt.Sprintf("%d requests, 3 instances, 1 killed: %d row (without the lock: %d)", s.requests, rows[4], rows[0]), nil
}

// play sends all requests of a scenario and returns how many rows they have created.
func (s *settings) play(stage *fleet.Stage, sc scenario) (rows int, err error) {
	f := stage.Part(sc.title)
	defer f.Close()
	schema := "CREATE TABLE users (id INTEGER PRIMARY KEY, phone TEXT NOT NULL)"
	if sc.unique {
		schema += "; CREATE UNIQUE INDEX users_phone ON users (phone)"
	}
	db, data, err := stage.Database(schema)
	if err != nil {
		return 0, err
	}
	defer db.Close()

	names := []string{"a", "b", "c"}
	for _, name := range names {
		args := []string{"-data", data}
		if sc.unlocked {
			args = append(args, "-without-lock")
		}
		if sc.kill {
			args = append(args, "-ttl", s.ttl.String())
		}
		if sc.stop != "" && name == "a" {
			args = append(args, "-stop", sc.stop)
		}
		f.Start(name, args...)
	}
	var urls []string
	for _, name := range names {
		urls = append(urls, "http://"+f.Await(name, "listening on "))
	}
	if f.Err() != nil {
		return 0, f.Err()
	}

	crowd := newCrowd(urls)
	start := time.Now()
	if sc.stop != "" {
		crowd.send(stage.Ctx, 0) // to a, which stops in the middle
		f.Await("a", "stopped")
	}
	for crowd.sent < s.requests {
		crowd.send(stage.Ctx, crowd.sent%len(urls))
	}
	switch {
	case sc.kill:
		f.Kill("a")
	case sc.stop != "":
		f.Do(func() error { return awaitRow(stage.Ctx, db) })
		f.Tell("a", "go on")
	}
	if f.Err() != nil {
		return 0, f.Err()
	}
	ids, err := crowd.wait()
	if err != nil {
		return 0, err
	}
	if err := db.QueryRowContext(stage.Ctx, "SELECT count(*) FROM users").Scan(&rows); err != nil {
		return 0, err
	}
	fmt.Fprintf(stage.Out, "   => %d requests, all answered after %.1f s: rows in the table: %d\n", s.requests, time.Since(start).Seconds(), rows)
	if !sc.unlocked && len(ids) != 1 {
		return rows, fmt.Errorf("the replies name %d users, want 1", len(ids))
	}
	return rows, sc.check(rows)
}

// awaitRow waits until the table is not empty.
func awaitRow(ctx context.Context, db *sql.DB) error {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		var rows int
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM users").Scan(&rows); err != nil || rows > 0 {
			return err
		}
	}
	return errors.New("no instance has inserted a row")
}

// A crowd sends many requests with the same phone number at the same time.
type crowd struct {
	urls  []string
	phone string
	sent  int

	all  sync.WaitGroup
	mu   sync.Mutex
	ids  map[string]int // how often each user was in a reply
	errs []error
}

func newCrowd(urls []string) *crowd {
	// Use a new number each time, because the store remembers those of earlier runs.
	return &crowd{urls: urls, phone: fmt.Sprintf("+86188%08d", rand.IntN(1e8)), ids: make(map[string]int)}
}

// send sends a request to an instance. If the instance dies or is busy, send repeats the request
// at the next instance, as a load balancer or a client would.
func (c *crowd) send(ctx context.Context, first int) {
	c.sent++
	c.all.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var id string
		var err error
		for i := first; ctx.Err() == nil; i++ {
			if id, err = c.post(ctx, c.urls[i%len(c.urls)]); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.errs = append(c.errs, err)
		} else {
			c.ids[id]++
		}
	})
}

func (c *crowd) post(ctx context.Context, base string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/register?"+url.Values{"phone": {c.phone}}.Encode(), nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(body))
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, text)
	}
	return text, nil
}

// wait waits for all replies and returns the users that they name.
func (c *crowd) wait() (map[string]int, error) {
	c.all.Wait()
	if len(c.errs) > 0 {
		return nil, fmt.Errorf("%d of %d requests failed, such as: %w", len(c.errs), c.sent, c.errs[0])
	}
	return c.ids, nil
}
