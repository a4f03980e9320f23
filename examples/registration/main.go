// Registration is an HTTP service in three instances. A thousand requests with the same phone number
// arrive at the same time, and create one user, even if an instance is killed. Copy service.go.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

var example = fleet.Example{Name: "registration", Instance: instance, Play: play}

func main() { example.Main() }

var requests = 1000 // with the same phone number

// instance serves until its standard input ends.
func instance(i *fleet.Instance) error {
	s, create := &service{locks: i.Locks, db: i.DB}, createUser
	var first sync.Once
	stop := func(where string) {
		if i.Name == "a" && i.Is(where) {
			first.Do(func() { i.Stop(where + " the INSERT") })
		}
	}
	createUser = func(ctx context.Context, db *sql.DB, phone string) error {
		stop("before")
		err := create(ctx, db, phone)
		stop("after")
		return err
	}
	register := s.register
	if i.Is("unlocked") {
		register = s.registerWithoutLock
	}
	server := httptest.NewServer(handler(register))
	fmt.Println("listening on", server.URL)
	<-i.Ctx.Done()
	return nil
}

// play lets crowds of requests register one number.
func play(s *fleet.Stage) (proof string) {
	const table = "CREATE TABLE users (id INTEGER PRIMARY KEY, phone TEXT NOT NULL);"
	unlocked := crowd(s, "no lock: look, then insert", table, "before", "unlocked", false)
	s.Want(unlocked > 1, "%d row without the lock: the requests did not compete", unlocked)
	rows := crowd(s, "Once, no unique index, and an instance is killed while it holds the lock", table, "before", "", true)
	s.Want(rows == 1, "%d rows, want 1", rows)
	rows = crowd(s, "Once, no unique index, and an instance is killed after its INSERT, before Once has noted it", table, "after", "", true)
	s.Want(rows == 2, "%d rows, want 2", rows)
	rows = crowd(s, "Once and a unique index, and an instance is killed at the same point", table+"CREATE UNIQUE INDEX phones ON users (phone)", "after", "", true)
	s.Want(rows == 1, "%d rows, want 1", rows)
	return fmt.Sprintf("%d requests, 3 instances, 1 killed: %d row (without the lock: %d)", requests, rows, unlocked)
}

// crowd sends all requests to new instances, and returns how many rows they have created. Instance a
// stops in the middle of its request, and is killed there or goes on when there is a row.
func crowd(s *fleet.Stage, title, schema, stopAt, mode string, kill bool) (rows int) {
	s.Part(title, schema)
	if kill {
		s.TTL = fleet.Short
	}
	var urls []string
	for _, name := range []string{"a", "b", "c"} {
		s.Ready(name, mode, stopAt)
		s.Tell("start", name)
		urls = append(urls, s.Await("listening on ", name).Text)
	}

	// Use a new number each time, because the store remembers those of earlier runs.
	query := fmt.Sprintf("/register?phone=%%2B86188%08d", rand.IntN(1e8))
	ids, errs := make([]string, requests), make([]error, requests)
	var all sync.WaitGroup
	for n := range requests {
		all.Go(func() { ids[n], errs[n] = post(s.Ctx, urls, n, query) })
		if n == 0 {
			s.Await("stopped", "a")
		}
	}
	if kill {
		s.Kill("a")
	} else {
		s.Until("a row", func() bool { return s.Int("SELECT count(*) FROM users") > 0 })
		s.Tell("go on", "a")
	}
	all.Wait()
	for n := range requests {
		must.OK(errs[n])
		s.Want(mode == "unlocked" || ids[n] == ids[0], "the replies name the users %s and %s", ids[n], ids[0])
	}
	rows = s.Int("SELECT count(*) FROM users")
	fmt.Fprintf(s.Out, "   => %d requests, all answered: rows in the table: %d\n", requests, rows)
	return rows
}

// post sends a request, and repeats it at the next instance if one dies or is busy, as a load balancer would.
func post(ctx context.Context, urls []string, first int, query string) (id string, err error) {
	for begin, n := time.Now(), first; time.Since(begin) < time.Minute && ctx.Err() == nil; n++ {
		var resp *http.Response
		if resp, err = http.Post(urls[n%len(urls)]+query, "", nil); err == nil {
			var body []byte
			body, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK {
				return string(body), nil
			}
			err = fmt.Errorf("%s: %s", resp.Status, body)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "", err
}
