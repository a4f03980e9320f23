package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// lock asks until the request is granted, as the core does, and counts how often a poll came
// before the wake-up.
func lock(ctx context.Context, s store.Store, req store.Request, polls *atomic.Int64) (store.Answer, error) {
	req.Queue = true
	for {
		a, err := s.Acquire(ctx, req)
		if err != nil || a.Granted() {
			return a, err
		}
		again, cancel := context.WithTimeout(ctx, a.Refusal.Again)
		err = s.Wait(again, req.Name, req.ID)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			polls.Add(1)
			err = nil
		}
		if err != nil {
			return a, err
		}
	}
}

func TestConcurrentLocksExcludeEachOtherAndLoseNoWakeUp(t *testing.T) {
	const goroutines, rounds, limit = 16, 150, 3
	before := runtime.NumGoroutine()
	s := memstore.New()
	defer s.Close()
	// One per name: the use of the name, counted outside of the store.
	type count struct {
		writers, readers, used atomic.Int32
		token                  atomic.Int64
	}
	var counts [3]count
	var polls atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range rounds {
				i := rand.IntN(len(counts))
				c := &counts[i]
				req := request(fmt.Sprint(i))
				switch {
				case rand.IntN(2) == 0:
				case i == 1:
					req.Mode = store.Shared
				case i == 2:
					req.Mode, req.Weight, req.Limit = store.Permits, 1+rand.IntN(limit), limit
				}
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if rand.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(200))*time.Microsecond)
				}
				a, err := lock(ctx, s, req, &polls)
				cancel()
				if err != nil {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					leave(t, s, req)
					continue
				}
				for {
					last := c.token.Load()
					if req.Mode == store.Exclusive && a.Token <= last {
						t.Errorf("token %d after %d", a.Token, last)
					}
					if a.Token <= last || c.token.CompareAndSwap(last, a.Token) {
						break
					}
				}
				switch req.Mode {
				case store.Exclusive:
					if c.writers.Add(1) != 1 || c.readers.Load() != 0 || c.used.Load() != 0 {
						t.Error("exclusive grant beside another")
					}
				case store.Shared:
					if c.readers.Add(1); c.writers.Load() != 0 {
						t.Error("shared grant beside an exclusive one")
					}
				case store.Permits:
					if c.used.Add(int32(req.Weight)) > limit || c.writers.Load() != 0 {
						t.Error("more permits than the limit")
					}
				}
				runtime.Gosched()
				switch req.Mode {
				case store.Exclusive:
					c.writers.Add(-1)
				case store.Shared:
					c.readers.Add(-1)
				case store.Permits:
					c.used.Add(-int32(req.Weight))
				}
				release(t, s, req)
			}
		})
	}
	all.Wait()
	if n := polls.Load(); n > 0 {
		t.Errorf("%d polls came before the wake-up: it was lost", n)
	}
	if n := memstore.Len(s); n != 0 {
		t.Errorf("%d names left in memory", n)
	}
	for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) { // goroutines of this test need a moment to end
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

func TestHandlesCanBeOpenedAndClosedConcurrently(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				s := open(t, "memory:busy")
				req := exclusive()
				ended := make(chan error)
				go func() {
					var polls atomic.Int64
					_, err := lock(t.Context(), s, req, &polls)
					ended <- err
				}()
				if rand.IntN(2) == 0 {
					runtime.Gosched()
				}
				s.Close()
				if err := <-ended; err != nil && !errors.Is(err, store.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := memstore.SharedTables(); n != 0 {
		t.Errorf("%d shared tables left", n)
	}
}

func TestAllCallsAreSafeForConcurrentUse(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	reqs := make([]store.Request, 32)
	for i := range reqs {
		reqs[i] = request(fmt.Sprint(i % 4))
		reqs[i].TTL = time.Duration(1+i) * 100 * time.Microsecond
		reqs[i].Queue = i%3 > 0
		if i%2 == 0 {
			reqs[i].Mode = store.Shared
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				req := reqs[rand.IntN(len(reqs))]
				var err error
				switch rand.IntN(7) {
				case 0, 1:
					_, err = s.Acquire(ctx, req)
				case 2:
					err = s.Release(ctx, req.Name, req.ID, store.Keep{State: store.Cooling, For: time.Millisecond})
				case 3:
					err = s.Leave(ctx, req.Name, req.ID)
				case 4:
					err = s.Break(ctx, req.Name, req.ID)
				case 5:
					_, err = s.Renew(ctx, []store.Renewal{renewal(req)})
				case 6:
					_, err = s.List(ctx, store.Query{})
				}
				if err != nil && !errors.Is(err, store.ErrNotHeld) && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
