package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// Batches of several clients contain the same names in different orders.
func TestBatchesDoNotDeadlock(t *testing.T) {
	p := server(t)
	const names = 8
	before := number(t, p, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")
	var wg sync.WaitGroup
	for range 4 {
		s := open(t, p.URL()+"&schema=batches&pool_max_conns=2")
		for range 16 {
			wg.Go(func() {
				for range 40 {
					r := request(fmt.Sprint("name", rand.IntN(names)))
					answer, err := s.Acquire(t.Context(), r)
					if err == nil && answer.Granted() {
						err = s.Release(t.Context(), r.Name, r.ID, store.Keep{})
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if after := number(t, p, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"); after != before {
		t.Errorf("%d deadlocks", after-before)
	}
}

// A Leave is not sent before the Acquire that it undoes has returned. Otherwise a grant that
// nobody knows of would stay until its TTL is over.
func TestALeaveWaitsForTheAcquireInFlight(t *testing.T) {
	p := server(t)
	proxy := faultproxy.Start(t, p.Addr())
	s := open(t, servers.PostgresURL(proxy.Addr())+"&schema=late&pool_max_conns=3")
	other := open(t, p.URL()+"&schema=late")
	for i := range 8 { // opens all connections, so that the statements below need no new ones
		granted(t, s, request(fmt.Sprint("first", i)))
	}
	proxy.ToServer.Hold() // requests are under way
	var wg sync.WaitGroup
	for i := range 4 { // so that the next call is part of a batch
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s.Acquire(ctx, request(fmt.Sprint("busy", i)))
		})
	}
	time.Sleep(50 * time.Millisecond)
	r := request("late")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Acquire(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire: %v, want the error of its context", err)
	}
	left := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		left <- s.Leave(ctx, r.Name, r.ID)
	}()
	time.Sleep(50 * time.Millisecond)
	proxy.Heal()
	if err := <-left; err != nil {
		t.Fatalf("Leave: %v", err)
	}
	wg.Wait()
	granted(t, other, request("late"))
}
