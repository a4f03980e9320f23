package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
)

// role is the name of the leadership, and of the resource that the fence protects.
const role = "scheduler"

// drainTime is how long requests may take after the server was asked to end.
const drainTime = 10 * time.Second

// A server answers HTTP requests in every instance, and works in the background in one, the leader.
type server struct {
	locks *holdfast.Client
	db    *sql.DB
}

// run serves until ctx ends, which happens when the process gets SIGTERM. Then it stops in this
// order:
//
//  1. It resigns. Its work has stopped before the lock is released, and the next leader takes
//     over at once, however long the requests here take.
//  2. It finishes the requests that have begun. They may still use locks.
//  3. It closes the client. This step is the last one, because it ends all locks.
func (s *server) run(ctx context.Context, listener net.Listener) error {
	campaign, resign := context.WithCancel(ctx)
	defer resign()
	campaigned := make(chan error, 1)
	go func() { campaigned <- s.locks.Campaign(campaign, role, s.lead) }()

	web := &http.Server{Handler: s.handler()} // its requests do not end with ctx
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()

	var failure error
	select {
	case <-ctx.Done():
		if err := <-campaigned; !errors.Is(err, context.Cause(ctx)) {
			failure = err
		}
	case failure = <-campaigned: // the work failed; a supervisor starts this program again
	case failure = <-served:
		resign()
		<-campaigned
	}
	fmt.Println("resigned")

	drain, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	failure = errors.Join(failure, web.Shutdown(drain))
	fmt.Println("answered all requests")

	return errors.Join(failure, s.locks.Close())
}

// lead works until ctx ends, because this process should end or because the leadership is lost. It must
// return soon after that. Campaign calls lead again when this process is the leader again.
func (s *server) lead(ctx context.Context) error {
	fmt.Println("leading with token", holdfast.TokenFrom(ctx))
	var err error
	for err == nil && ctx.Err() == nil {
		err = s.workOnce(ctx)
		rest()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx) // instead of the error that the database returned because of it
	}
	fmt.Println("stopped working:", err)
	return err
}

// rest is the time between two pieces of work. The demonstration adds a pause.
var rest = func() { time.Sleep(20 * time.Millisecond) }

// workOnce does one piece of the leader's work. The database refuses its token if this process was suspended
// and another one leads now.
func (s *server) workOnce(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := sqlfence.SQLite.Check(ctx, tx, role, holdfast.TokenFrom(ctx)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO work (leader) VALUES (?)", s.locks.Owner()); err != nil {
		return err
	}
	return tx.Commit()
}

// handler serves GET /leader, which replies with the name of the leader, and with ?after=2s after 2 seconds.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, r *http.Request) {
		if after, err := time.ParseDuration(r.FormValue("after")); err == nil {
			fmt.Println("works on a request for", after)
			time.Sleep(after)
		}
		leader, err := s.locks.Leader(r.Context(), role)
		switch {
		case err == nil:
			fmt.Fprintln(w, leader.Owner)
		case errors.Is(err, holdfast.ErrNotHeld):
			http.Error(w, "nobody leads", http.StatusNotFound)
		default:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}
