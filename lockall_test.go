package holdfast_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
)

func TestLockAllTakesAllNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		set, err := a.LockAll(t.Context(), []string{"y", "x", "y"})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(set.Leases()); n != 2 {
			t.Errorf("%d leases for two names", n)
		}
		for _, name := range []string{"x", "y"} {
			_, err := b.TryLock(t.Context(), name)
			want(t, err, holdfast.ErrHeld)
			if set.Lease(name).Token() <= 0 {
				t.Errorf("no token for %s", name)
			}
		}
		if set.Lease("z") != nil {
			t.Error("a lease that was not asked for")
		}
		ctx := set.Context(t.Context())
		_, err = a.Lock(ctx, "x")
		want(t, err, holdfast.ErrWouldDeadlock)
		if err := set.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		if err := set.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, ctx.Err(), context.Canceled)
		want(t, set.Err(), holdfast.ErrNotHeld)
		free(t, b, "x")
		free(t, b, "y")
	})
}

func TestLockAllHoldsNothingIfOneNameIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, b, "y")
		_, err := a.LockAll(t.Context(), []string{"z", "y", "x"}, holdfast.Wait(time.Second))
		want(t, err, holdfast.ErrHeld)
		free(t, b, "x")
		free(t, b, "z")
		mustUnlock(t, lease)
		free(t, b, "y")
	})
}

func TestLockAllChecksAllNamesBeforeTakingOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		for _, names := range [][]string{nil, {"a", ""}, {"a", "b\x00"}} {
			_, err := c.LockAll(t.Context(), names)
			want(t, err, holdfast.ErrInvalid)
		}
		if n := p.acquires.Load(); n != 0 {
			t.Errorf("%d requests for bad names", n)
		}
	})
}

func TestConcurrentLockAllsDoNotDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		var wg sync.WaitGroup
		orders := [][]string{{"x", "y", "z"}, {"z", "y", "x"}, {"y", "x"}, {"z", "x"}}
		for i := range 40 {
			c := a
			if i%2 == 0 {
				c = b
			}
			wg.Go(func() {
				for range 20 {
					set, err := c.LockAll(context.Background(), orders[i%len(orders)])
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					if err := set.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestLossOfOneNameEndsTheWholeSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		set, err := a.LockAll(t.Context(), []string{"x", "y"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, done := set.Context(t.Context()), set.Done()
		if set.Err() != nil || isDone(done) {
			t.Error("the set ended before its time")
		}
		if err := b.Break(t.Context(), "y", set.Lease("y").ID()); err != nil {
			t.Fatal(err)
		}
		<-done
		synctest.Wait()
		want(t, context.Cause(ctx), holdfast.ErrLost)
		want(t, set.Err(), holdfast.ErrLost)
		want(t, set.Unlock(t.Context()), holdfast.ErrLost)
		free(t, b, "x")
	})
}

func TestLockAllFailsIfItLosesANameWhileWaitingForAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, b, "y")
		time.AfterFunc(time.Minute, func() { lease.Unlock(context.Background()) })
		_, err := a.LockAll(t.Context(), []string{"x", "y"}, holdfast.NoRenew())
		want(t, err, holdfast.ErrLost)
		free(t, b, "x")
		free(t, b, "y")
	})
}

func TestFailedLockAllIgnoresMinHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		held := mustLock(t, b, "y")
		_, err := a.LockAll(t.Context(), []string{"x", "y"}, holdfast.MinHold(time.Hour), holdfast.Wait(time.Second))
		want(t, err, holdfast.ErrHeld)
		if l, err := b.TryLock(t.Context(), "x"); err != nil {
			t.Errorf("LockAll failed and left x closed: %v", err)
		} else {
			mustUnlock(t, l)
		}
		mustUnlock(t, held)
	})
}

func TestWaitBoundsLockAllAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		for i, n := range []string{"x", "y", "z"} {
			l := mustLock(t, b, n)
			time.AfterFunc(time.Duration(i+1)*900*time.Millisecond, func() { l.Unlock(context.Background()) })
		}
		start := newClock()
		_, err := a.LockAll(t.Context(), []string{"x", "y", "z"}, holdfast.Wait(time.Second))
		if d := time.Since(start.start); d > time.Second {
			t.Errorf("LockAll with Wait(1s) took %v: %v", d, err)
		}
	})
}

func TestLockAllHonoursMinHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		set, err := a.LockAll(t.Context(), []string{"x", "y"}, holdfast.MinHold(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		set.Unlock(t.Context())
		for _, name := range []string{"x", "y"} {
			_, err := b.TryLock(t.Context(), name)
			want(t, err, holdfast.ErrHeld)
		}
	})
}

func TestAFailedReentrantLockAllKeepsTheMinHoldOfTheOuterLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		mustLock(t, b, "b")
		outer := mustLock(t, a, "a", holdfast.MinHold(time.Minute))
		_, err := a.LockAll(outer.Context(t.Context()), []string{"a", "b"}, holdfast.Reentrant(), holdfast.Wait(0))
		want(t, err, holdfast.ErrHeld)
		mustUnlock(t, outer)
		_, err = b.TryLock(t.Context(), "a")
		want(t, err, holdfast.ErrHeld)
	})
}

func TestLockAllHoldsNothingAfterAStrategyPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s), newClient(t, s)
		mustLock(t, other, "b")
		func() {
			defer func() { recover() }()
			c.LockAll(t.Context(), []string{"a", "b"}, holdfast.Retry(holdfast.StrategyFunc(func(int, error) (time.Duration, bool) { panic("no") })))
		}()
		free(t, other, "a")
	})
}
