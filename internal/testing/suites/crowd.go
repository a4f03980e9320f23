package suites

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	CrowdName = "crowd" // the name that all clients use

	stay     = 10 * time.Second // how long the crowd waits before the first hand-off: more than a heartbeat
	handOffs = 20
	pause    = 100 * time.Millisecond // between two renewals
	patience = 5 * time.Minute
)

// A CrowdResult has the longest times that were measured.
type CrowdResult struct {
	Join    time.Duration // until all waiters were queued, which joined at once
	Renewal time.Duration // of a holder, meanwhile and afterwards
	HandOff time.Duration // from the call of Unlock until the next waiter has the lock
}

func (r CrowdResult) String() string {
	return fmt.Sprintf("all queued after %v; longest renewal %v, longest hand-off %v", r.Join, r.Renewal, r.HandOff)
}

// Crowd opens a client for each reader and each waiter. The readers hold a name, or one client exclusively if
// there are none, and all waiters wait for it at once. Queued returns how many requests are queued.
func Crowd(t testing.TB, url string, readers, waiters int, queued func() (int, error)) (r CrowdResult) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var running sync.WaitGroup
	clients := make([]*holdfast.Client, max(1, readers)+waiters)
	defer func() {
		cancel()
		running.Wait()
		inParallel(t, len(clients), func(i int) error {
			if clients[i] == nil {
				return nil
			}
			return clients[i].Close()
		})
	}()
	inParallel(t, len(clients), func(i int) (err error) {
		clients[i], err = holdfast.Open(ctx, url)
		return err
	})
	held := make([]*holdfast.Lease, max(1, readers))
	inParallel(t, len(held), func(i int) (err error) {
		lock := clients[i].RLock
		if readers == 0 {
			lock = clients[i].Lock
		}
		held[i], err = lock(ctx, CrowdName)
		return err
	})
	renew := func(l *holdfast.Lease) {
		begin := time.Now()
		if err := l.Renew(ctx); err != nil {
			t.Errorf("a renewal failed after %v: %v", time.Since(begin), err)
		}
		r.Renewal = max(r.Renewal, time.Since(begin))
	}

	type grant struct {
		lease *holdfast.Lease
		at    time.Time
	}
	granted := make(chan grant, waiters)
	begin := time.Now()
	for _, c := range clients[len(held):] {
		running.Go(func() {
			lease, err := c.Lock(ctx, CrowdName, holdfast.Retry(holdfast.Backoff(100*time.Millisecond, 3*time.Second)))
			if err == nil {
				granted <- grant{lease, time.Now()}
			} else if ctx.Err() == nil {
				t.Errorf("a waiter: %v", err)
			}
		})
	}
	for r.Join == 0 || time.Since(begin) < r.Join+stay {
		renew(held[0])
		time.Sleep(pause)
		if n, err := queued(); err != nil || ctx.Err() != nil {
			t.Fatalf("%d of %d are queued: %v", n, waiters, err)
		} else if r.Join == 0 && n >= waiters {
			r.Join = time.Since(begin)
		}
	}
	inParallel(t, len(held)-1, func(i int) error { return held[i+1].Unlock(ctx) })
	lease := held[0]
	for range min(handOffs, waiters) {
		renew(lease)
		begin := time.Now()
		must(t, lease.Unlock(ctx))
		select {
		case next := <-granted:
			r.HandOff = max(r.HandOff, next.at.Sub(begin))
			lease = next.lease
		case <-ctx.Done():
			t.Fatal("the next waiter is not granted")
		}
	}
	return r
}

// inParallel calls f(0) … f(n-1), a few at a time.
func inParallel(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	turns := make(chan struct{}, 32)
	var wg sync.WaitGroup
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			if err := f(i); err != nil {
				t.Error(err)
			}
			<-turns
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
