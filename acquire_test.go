package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A request may time out after the store has granted it.
func TestRetriedAcquireRecognisesItsOwnGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		ids := map[store.ID]bool{}
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			ids[req.ID] = true
			answer, err := s.Acquire(ctx, req)
			if p.acquires.Load() < 3 {
				return store.Answer{}, errNet // granted, but the reply is lost
			}
			return answer, err
		}
		c := newClient(t, p)
		start := newClock()
		lease := mustLock(t, c, "n")
		start.wantWithin(t, 0, time.Second) // far less than a TTL
		if len(ids) != 1 {
			t.Errorf("asked under %d identities", len(ids))
		}
		mustUnlock(t, lease)
		free(t, newClient(t, s), "n")
	})
}

// redsync and redislock cleaned up with the context that had ended, which left the lock held
// until its TTL was over.
func TestAcquireWithALostReplyIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			if _, err := s.Acquire(ctx, req); err != nil {
				return store.Answer{}, err
			}
			return store.Answer{}, hang(ctx)
		}
		c, other := newClient(t, p), newClient(t, s)
		for _, lock := range []func(context.Context, string, ...holdfast.CallOption) (*holdfast.Lease, error){c.Lock, c.TryLock, c.RLock} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := lock(ctx, "n")
			cancel()
			want(t, err, context.DeadlineExceeded)
			synctest.Wait()
			free(t, other, "n")
		}
	})
}

func TestCleanUpOfAnAcquireIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			s.Acquire(ctx, req)
			return store.Answer{}, errNet
		}
		p.leave = func(ctx context.Context, name string, id store.ID) error {
			if p.leaves.Load() < 4 {
				return errNet
			}
			return s.Leave(ctx, name, id)
		}
		c, other := newClient(t, p), newClient(t, s)
		_, err := c.TryLock(t.Context(), "n")
		want(t, err, holdfast.ErrUnavailable, errNet)
		time.Sleep(time.Second)
		free(t, other, "n")
	})
}

func TestTryLockMakesOneAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = failAcquire
		c := newClient(t, p)
		_, err := c.TryLock(t.Context(), "n")
		want(t, err, holdfast.ErrUnavailable, errNet)
		wantNone(t, err, holdfast.ErrHeld)
		if n := p.acquires.Load(); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

// rueidislock blocks silently until the context ends.
func TestUnreachableStoreIsReportedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = failAcquire
		var seen recorder
		c := newClient(t, p, holdfast.WithObserver(seen.observe))
		start := newClock()
		_, err := c.Lock(context.Background(), "n")
		want(t, err, holdfast.ErrUnavailable, errNet)
		start.wantWithin(t, time.Second, 4*time.Second)
		if seen.count(holdfast.EventError) != 7 || !strings.Contains(err.Error(), "7 attempts") {
			t.Errorf("seen: %s; error reads %q", seen.kinds(), err)
		}
	})
}

func TestContextEndingDuringAnOutageReportsBothErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = failAcquire
		c := newClient(t, p)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := c.Lock(ctx, "n")
		want(t, err, context.DeadlineExceeded, holdfast.ErrUnavailable, errNet)
	})
}

func TestWaiterSurvivesAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, holder := newClient(t, p), newClient(t, s)
		lease := mustLock(t, holder, "n")
		got := later(t, c, "n")
		p.set(func() {
			p.acquire = failAcquire
			p.wait = func(context.Context, string, store.ID) error { return errNet }
		})
		mustUnlock(t, lease)
		time.Sleep(time.Second)
		p.set(func() { p.acquire, p.wait = nil, nil })
		mustUnlock(t, <-got)
	})
}

// If a push is lost, the waiter is delayed but does not hang.
func TestLostWakeUpIsMadeUpForByPolling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.wait = func(ctx context.Context, _ string, _ store.ID) error { return hang(ctx) }
		c, holder := newClient(t, p), newClient(t, s)
		lease := mustLock(t, holder, "n")
		got := later(t, c, "n")
		start := newClock()
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
		start.wantWithin(t, 0, s.Capabilities().Heartbeat)
	})
}

func TestWaitingClientPollsRarely(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, holder := newClient(t, p), newClient(t, s)
		lease := mustLock(t, holder, "n")
		served := lineUp(t, 100, func(int) *holdfast.Client { return c }, "n", 0)
		time.Sleep(time.Minute)
		if n := p.acquires.Load(); n > 60 {
			t.Errorf("100 waiting goroutines asked %d times in a minute", n)
		}
		mustUnlock(t, lease)
		served()
	})
}

func TestCancelledWaiterLeavesNothingQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, holder := newClient(t, newProxy(s)), newClient(t, s)
		lease := mustLock(t, holder, "n")
		ctx, cancel := context.WithCancel(t.Context())
		over := laterErr(ctx, c)
		start := newClock()
		cancel()
		want(t, <-over, context.Canceled, holdfast.ErrHeld)
		start.want(t, 0)
		synctest.Wait()
		if info, _ := holder.Inspect(t.Context(), "n"); len(info.Waiters) != 0 {
			t.Errorf("%d waiters left in the queue", len(info.Waiters))
		}
		mustUnlock(t, lease)
	})
}

func TestStoreWithoutAQueueIsPolledWithBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.caps = func(caps *store.Capabilities) { caps.Features &^= store.FeatureQueue }
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			if req.Queue {
				t.Error("asked to queue")
			}
			return s.Acquire(ctx, req)
		}
		c, holder := newClient(t, p), newClient(t, s)
		lease := mustLock(t, holder, "n")
		got := later(t, c, "n")
		time.Sleep(10 * time.Second)
		if n := p.acquires.Load(); n < 20 || n > 60 {
			t.Errorf("asked %d times in 10 s", n)
		}
		start := newClock()
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
		start.wantWithin(t, 0, 500*time.Millisecond)
		if n := p.waits.Load(); n != 0 {
			t.Errorf("Wait was called %d times", n)
		}
	})
}

func TestStrategySeesAttemptsAndErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, holder := newClient(t, p), newClient(t, s)
		defer mustLock(t, holder, "n").Unlock(context.Background())

		var held, failed []int
		strategy := holdfast.StrategyFunc(func(attempt int, err error) (time.Duration, bool) {
			var he *holdfast.HeldError
			switch {
			case errors.As(err, &he) && len(he.Holders) == 1:
				held = append(held, attempt)
			case errors.Is(err, holdfast.ErrUnavailable):
				failed = append(failed, attempt)
			}
			return time.Second, attempt < 3
		})
		start := newClock()
		_, err := c.Lock(t.Context(), "n", holdfast.Retry(strategy))
		want(t, err, holdfast.ErrHeld)
		start.want(t, 2*time.Second)
		if len(held) != 3 || held[2] != 3 || len(failed) != 0 {
			t.Errorf("attempts seen: held %v, failed %v", held, failed)
		}
		synctest.Wait()
		if info, _ := holder.Inspect(t.Context(), "n"); len(info.Waiters) != 0 {
			t.Error("left in the queue after giving up")
		}

		p.set(func() { p.acquire = failAcquire })
		start = newClock()
		_, err = c.Lock(t.Context(), "n", holdfast.Retry(strategy))
		want(t, err, holdfast.ErrUnavailable)
		start.want(t, 2*time.Second)
		if len(failed) != 3 {
			t.Errorf("failures seen: %v", failed)
		}
	})
}

func TestRetriesKeepThePlaceInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		patient, later, holder := newClient(t, s), newClient(t, s), newClient(t, s)
		lease := mustLock(t, holder, "n")
		got := make(chan string, 2)
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			lease := mustLock(t, patient, "n", holdfast.Retry(holdfast.Every(time.Hour)))
			got <- "patient"
			mustUnlock(t, lease)
		})
		synctest.Wait()
		wg.Go(func() {
			lease := mustLock(t, later, "n")
			got <- "later"
			mustUnlock(t, lease)
		})
		time.Sleep(10 * time.Minute) // far longer than a heartbeat
		start := newClock()
		mustUnlock(t, lease)
		if first := <-got; first != "patient" {
			t.Errorf("%s was served first", first)
		}
		<-got
		start.want(t, 0) // woken, not polling
	})
}

// In redislock, a strategy that was used twice had no attempts left.
func TestStrategyCanBeSharedByConcurrentCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder := newClient(t, s)
		defer mustLock(t, holder, "n").Unlock(context.Background())
		strategy := holdfast.MaxAttempts(4, holdfast.Every(time.Second))
		var wg sync.WaitGroup
		for range 10 {
			c := newClient(t, s)
			wg.Go(func() {
				for range 3 {
					start := newClock()
					_, err := c.Lock(t.Context(), "n", holdfast.Retry(strategy))
					want(t, err, holdfast.ErrHeld)
					start.want(t, 3*time.Second)
				}
			})
		}
		wg.Wait()
	})
}

// After a cancelled wait, the store may still have the waiter of this client. It must not cause a
// refusal.
func TestTryLockIsNotRefusedBecauseOfAnEarlierCancelledWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.leave = func(ctx context.Context, name string, id store.ID) error {
			time.Sleep(100 * time.Millisecond)
			return s.Leave(ctx, name, id)
		}
		c, other := newClient(t, p), newClient(t, s)
		blocker := mustLock(t, other, "n")
		_, err := c.Lock(t.Context(), "n", holdfast.Wait(time.Second))
		want(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
		mustUnlock(t, blocker)
		lease, err := c.TryLock(t.Context(), "n")
		if err != nil {
			t.Fatalf("refused because of its own waiter: %v", err)
		}
		mustUnlock(t, lease)
	})
}

func TestHungCleanUpDelaysTheNextCallOnlyBriefly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.leave = func(ctx context.Context, _ string, _ store.ID) error { return hang(ctx) }
		c, other := newClient(t, p), newClient(t, s)
		blocker := mustLock(t, other, "n")
		_, err := c.Lock(t.Context(), "n", holdfast.Wait(time.Second))
		want(t, err, holdfast.ErrHeld)
		start := newClock()
		_, err = c.TryLock(t.Context(), "n")
		want(t, err, holdfast.ErrHeld)
		start.want(t, time.Second)
		mustUnlock(t, blocker)
	})
}

// The store may grant a queued request at any time, with the TTL and meta of the request. A call
// that takes over its identity must have the same TTL and meta.
func TestRequestsUnderOneIdentityAreIdentical(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		type asked struct {
			ttl  time.Duration
			meta string
		}
		var mu sync.Mutex
		requests := make(map[store.ID]asked)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			mu.Lock()
			now := asked{req.TTL, req.Meta}
			if before, ok := requests[req.ID]; ok && before != now {
				t.Errorf("asked for %v and then for %v under one identity", before, now)
			}
			requests[req.ID] = now
			mu.Unlock()
			return s.Acquire(ctx, req)
		}
		c, other := newClient(t, p), newClient(t, s)
		blocker := mustLock(t, other, "n")
		var wg sync.WaitGroup
		for i, opts := range [][]holdfast.CallOption{
			{holdfast.TTL(time.Second), holdfast.Wait(time.Second)}, // gives up
			{holdfast.TTL(8 * time.Second), holdfast.Wait(2 * time.Second)},
			{holdfast.TTL(8 * time.Second), holdfast.Meta("x"), holdfast.Wait(3 * time.Second)},
			{holdfast.TTL(8 * time.Second), holdfast.Meta("x")}, // may take over the place
		} {
			wg.Go(func() {
				lease, err := c.Lock(t.Context(), "n", opts...)
				if i < 3 {
					want(t, err, holdfast.ErrHeld)
				} else if err != nil {
					t.Error(err)
				} else {
					mustUnlock(t, lease)
				}
			})
			synctest.Wait()
		}
		time.Sleep(4 * time.Second)
		mustUnlock(t, blocker)
		wg.Wait()
		if len(requests) != 3 {
			t.Errorf("%d identities, want 3: the last call takes over the place of the one before it", len(requests))
		}
	})
}

func TestConcurrentTryLocksDoNotAddUpTheirTimeoutsInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = hangAcquire
		c := newClient(t, p)
		start := newClock()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { c.TryLock(context.Background(), "n") })
		}
		wg.Wait()
		if d := time.Since(start.start); d > 6*time.Second {
			t.Errorf("20 TryLocks against a hung store took %v, one takes 5 s", d)
		}
	})
}

func TestTryLockFailsSoonWhileAnotherCallRetriesDuringAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = failAcquire
		c := newClient(t, p)
		go c.Campaign(context.Background(), "n", func(ctx context.Context) error { return nil })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := newClock()
		_, err := c.TryLock(ctx, "n")
		if d := time.Since(start.start); d > 10*time.Second {
			t.Errorf("TryLock took %v: %v", d, err)
		}
	})
}

func TestSpuriousWakeUpsDoNotMakeTheClientSpin(t *testing.T) {
	s := memstore.New()
	p := newProxy(s)
	p.wait = func(context.Context, string, store.ID) error { return nil } // the contract allows it to return early
	holder, c := newClient(t, s), newClient(t, p)
	mustLock(t, holder, "n")
	c.Lock(t.Context(), "n", holdfast.Wait(200*time.Millisecond))
	if n := p.acquires.Load(); n > 250 {
		t.Errorf("%d acquires in 200 ms", n)
	}
}
