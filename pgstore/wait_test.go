package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// queued adds a waiter to a held name, and waits until notifications arrive.
func queued(t *testing.T, s *pgstore.Store, name string) store.Request {
	t.Helper()
	req := suites.Queued(name)
	refused(t, s, req)
	eventually(t, "no notifications", func() bool { return pgstore.Pushed(s) })
	refused(t, s, req)
	return req
}

// waitFor calls Wait on a new goroutine and returns its result.
func waitFor(s store.Store, req store.Request) <-chan error {
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	go func() {
		defer cancel()
		ended <- s.Wait(ctx, req.Name, req.ID)
	}()
	return ended
}

func TestATerminatedBackendOfTheListenerIsReplaced(t *testing.T) {
	p := server(t)
	one, two := openStore(t, p.URL()), openStore(t, p.URL()+"&application_name=listens")
	holder := request("terminated")
	granted(t, one, holder)
	waiter := queued(t, two, "terminated")
	ended := waitFor(two, waiter)
	if p.Terminate("application_name = 'listens'") == 0 {
		t.Fatal("no connection to terminate")
	}
	must(t, <-ended) // so that the waiter asks and misses nothing
	eventually(t, "the waiter cannot ask", func() bool {
		_, err := two.Acquire(t.Context(), waiter)
		return err == nil
	})
	eventually(t, "no notifications after the connection was ended", func() bool { return pgstore.Pushed(two) })
	refused(t, two, waiter)
	ended = waitFor(two, waiter)
	release(t, one, holder)
	must(t, <-ended)
}

// Each host has its own time: those that hang must not use up that of the others.
func TestTheStoreListensAlthoughTheFirstHostHangs(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer hangs.Close()
	s := openStore(t, strings.Replace(p.URL(), p.Addr(), hangs.Addr().String()+","+p.Addr(), 1))
	granted(t, s, request("name"))
	queued(t, s, "name")
}

// The pooler gives each transaction another connection. The store then uses no prepared
// statements and no LISTEN, and logs one line about that.
func TestBehindPgBouncerInTransactionModeWaitersPoll(t *testing.T) {
	p := server(t)
	b := servers.StartPgBouncer(t, p)
	var log suites.Text
	pool := newPool(t, servers.PostgresURL(b.Addr()), 10)
	s := newIn(t, pool, pgstore.Logger(slog.New(slog.NewTextHandler(&log, nil))))
	direct := openStore(t, p.URL())
	for i := range 50 { // the connections behind the pooler change constantly
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				r := request(fmt.Sprint("pooled", i, g))
				if a, err := s.Acquire(t.Context(), r); err != nil || !a.Granted() {
					t.Errorf("Acquire: %v", err)
				}
				if err := s.Release(t.Context(), r.Name, r.ID, store.Keep{}); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		wg.Wait()
	}
	holder := request("pooler")
	granted(t, direct, holder)
	waiter := suites.Queued("pooler")
	refused(t, s, waiter)
	eventually(t, "the pooler was not noticed", func() bool { return strings.Contains(log.String(), "pooler") })
	if again := refused(t, s, waiter).Again; again > 50*time.Millisecond {
		t.Errorf("the next waiter asks again after %v, want a poll", again)
	}
	if again := refused(t, s, suites.Queued("pooler")).Again; again <= 50*time.Millisecond || again > 100*time.Millisecond {
		t.Errorf("the second waiter asks again after %v, want half as often as the next one", again)
	}
	release(t, direct, holder)
	granted(t, s, waiter)
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("%d lines in the log, want one:\n%s", n, log.String())
	}
}
