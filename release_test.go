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

// Four other libraries left the lock held if the context had ended.
func TestUnlockWorksOnACancelledContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, newProxy(s)), newClient(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		lease, err := c.Lock(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := lease.Unlock(ctx); err != nil {
			t.Error(err)
		}
		free(t, other, "n")
	})
}

func TestSecondUnlockReturnsErrNotHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n")
		mustUnlock(t, lease)
		next := mustLock(t, b, "n")
		want(t, lease.Unlock(t.Context()), holdfast.ErrNotHeld)
		want(t, lease.Err(), holdfast.ErrNotHeld)
		if !isDone(lease.Done()) {
			t.Error("Done is open after Unlock")
		}
		if err := next.Renew(t.Context()); err != nil {
			t.Errorf("the second unlock touched the next holder: %v", err)
		}
		mustUnlock(t, next)
	})
}

func TestConcurrentUnlocksReleaseOnce(t *testing.T) {
	p := newProxy(memstore.New())
	c := newClient(t, p)
	for range 100 {
		p.releases.Store(0)
		lease := mustLock(t, c, "n")
		var wg sync.WaitGroup
		var mu sync.Mutex
		released := 0
		for range 8 {
			wg.Go(func() {
				err := lease.Unlock(t.Context())
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					released++
				} else {
					want(t, err, holdfast.ErrNotHeld)
				}
			})
		}
		wg.Wait()
		if n := p.releases.Load(); released != 1 || n != 1 {
			t.Fatalf("%d unlocks succeeded with %d releases", released, n)
		}
	}
}

func TestLeaseContextsEndBeforeTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c := newClient(t, p)
		lease := mustLock(t, c, "n")
		work := lease.Context(t.Context())
		p.set(func() {
			p.release = func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				if work.Err() == nil {
					t.Error("the work continues while the lock is released")
				}
				return s.Release(ctx, name, id, keep)
			}
		})
		mustUnlock(t, lease)
		want(t, context.Cause(work), holdfast.ErrNotHeld)
		late := lease.Context(t.Context())
		want(t, context.Cause(late), holdfast.ErrNotHeld)
	})
}

func TestReleaseWithALostReplyIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.release = func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
			err := s.Release(ctx, name, id, keep)
			if p.releases.Load() < 3 {
				return errNet
			}
			return err
		}
		c := newClient(t, p)
		lease := mustLock(t, c, "n")
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v, want nil, because the first attempt released it", err)
		}
		if n := p.releases.Load(); n != 3 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestUnlockIsBoundedAndContinuesInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, other := newClient(t, p, holdfast.WithTTL(time.Minute)), newClient(t, s)
		lease := mustLock(t, c, "n")
		p.set(func() { p.release = failRelease })
		start := newClock()
		err := lease.Unlock(t.Context())
		want(t, err, holdfast.ErrUnavailable, errNet)
		wantNone(t, err, holdfast.ErrLost)
		start.wantWithin(t, 3*time.Second, 5*time.Second)
		if !strings.Contains(err.Error(), "expires in") {
			t.Errorf("error reads %q", err)
		}
		p.set(func() { p.release = nil }) // the store is back
		time.Sleep(2 * time.Second)
		synctest.Wait()
		free(t, other, "n") // long before its TTL
	})
}

func TestUnlockReportsThatTheGrantWasGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n")
		if err := b.Break(t.Context(), "n", lease.ID()); err != nil {
			t.Fatal(err)
		}
		next := mustLock(t, b, "n")
		want(t, lease.Unlock(t.Context()), holdfast.ErrLost)
		if err := next.Renew(t.Context()); err != nil {
			t.Errorf("the late unlock touched the next holder: %v", err)
		}
		mustUnlock(t, next)
	})
}

func TestMinHoldKeepsTheNameClosedForTheRemainingTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		start := newClock()
		lease := mustLock(t, a, "n", holdfast.MinHold(10*time.Second))
		time.Sleep(2 * time.Second)
		mustUnlock(t, lease)
		_, err := b.TryLock(t.Context(), "n")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Holders[0].State != store.Cooling || held.Holders[0].Left != 8*time.Second {
			t.Errorf("TryLock: %v", err)
		}
		if text := `holdfast: try lock "n": in cool-down after release by alice, free in 8s`; err.Error() != text {
			t.Errorf("error reads\n%s\nwant\n%s", err, text)
		}
		mustUnlock(t, mustLock(t, a, "n")) // also for the same client
		start.want(t, 10*time.Second)

		// A lease that was held long enough leaves no kept record.
		lease = mustLock(t, a, "n", holdfast.MinHold(10*time.Second))
		time.Sleep(11 * time.Second)
		mustUnlock(t, lease)
		free(t, b, "n")
	})
}

func TestMinHoldDelaysTheHandover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t)
		start := newClock()
		lease := mustLock(t, a, "n", holdfast.MinHold(10*time.Second))
		served := lineUp(t, 2, func(int) *holdfast.Client { return a }, "n", 0)
		mustUnlock(t, lease)
		wantOrder(t, served(), 2)
		start.wantWithin(t, 10*time.Second, 10*time.Second+2*time.Millisecond)
	})
}

func TestMinHoldAppliesToALeaseThatWasHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n")
		got := later(t, a, "n", holdfast.MinHold(10*time.Second))
		mustUnlock(t, lease)
		start := newClock()
		mustUnlock(t, <-got)
		mustUnlock(t, mustLock(t, b, "n"))
		start.wantWithin(t, 10*time.Second, 10*time.Second+2*time.Millisecond)
	})
}

func TestMinHoldBeginsWithTheReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, other := newClient(t, p), newClient(t, s)
		p.set(func() {
			p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
				time.Sleep(time.Second)
				return s.Acquire(ctx, req)
			}
		})
		begin := newClock()
		lease := mustLock(t, c, "n", holdfast.MinHold(time.Second))
		begin.want(t, time.Second)
		mustUnlock(t, lease)
		mustUnlock(t, mustLock(t, other, "n"))
		begin.want(t, 2*time.Second)

		begin = newClock()
		set, err := c.LockAll(t.Context(), []string{"a", "b"}, holdfast.MinHold(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		begin.want(t, 2*time.Second)
		if err := set.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, mustLock(t, other, "a"))
		begin.want(t, 3*time.Second)
	})
}

func TestMinHoldDoesNotIncludeTimeInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s, holdfast.WithHandover(0, 0)), newClient(t, s)
		first := mustLock(t, c, "n")
		got := later(t, c, "n", holdfast.MinHold(10*time.Second))
		time.Sleep(11 * time.Second)
		mustUnlock(t, first)
		mustUnlock(t, <-got)
		if l, err := other.TryLock(t.Context(), "n"); err == nil {
			mustUnlock(t, l)
			t.Error("MinHold(10s) lease unlocked after 0 s leaves the name open")
		}
	})
}

func TestCloseFinishesAReleaseThatIsBeingRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c := mustNew(t, p)
		other := newClient(t, s)
		lease := mustLock(t, c, "n")
		p.set(func() { p.release = failRelease })
		var wg sync.WaitGroup
		wg.Go(func() { lease.Unlock(t.Context()) })
		synctest.Wait() // the call waits before the second attempt
		p.set(func() { p.release = nil })
		c.Close()
		free(t, other, "n")
		wg.Wait()
	})
}
