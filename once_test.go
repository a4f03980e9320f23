package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestOnceRunsOnceForConcurrentCallers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var runs, done atomic.Int64
		var wg sync.WaitGroup
		for range 5 {
			c := newClient(t, s)
			for range 10 {
				wg.Go(func() {
					err := c.Once(context.Background(), "register:1", time.Hour, func(context.Context) error {
						runs.Add(1)
						time.Sleep(time.Second)
						return nil
					})
					if errors.Is(err, holdfast.ErrDone) {
						done.Add(1)
					} else if err != nil {
						t.Error(err)
					}
				})
			}
		}
		start := newClock()
		wg.Wait()
		start.want(t, time.Second) // all callers return at once
		if runs.Load() != 1 || done.Load() != 49 {
			t.Errorf("ran %d times, %d were told that it is done", runs.Load(), done.Load())
		}
	})
}

func TestOnceStaysDoneForTheGivenTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		ok := func(context.Context) error { return nil }
		if err := a.Once(t.Context(), "n", time.Hour, ok); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Millisecond)
		err := b.Once(t.Context(), "n", time.Hour, ok)
		want(t, err, holdfast.ErrDone)
		wantNone(t, err, holdfast.ErrHeld)
		if text := `holdfast: once "n": already done by alice`; err.Error() != text {
			t.Errorf("error reads %q, want %q", err, text)
		}
		_, err = b.TryLock(t.Context(), "n")
		want(t, err, holdfast.ErrHeld)
		if !strings.Contains(err.Error(), "closed: done by alice 1h0m0s ago, kept for another 1ms") {
			t.Errorf("error reads %q", err)
		}
		time.Sleep(time.Millisecond)
		if err := b.Once(t.Context(), "n", time.Hour, ok); err != nil {
			t.Error(err)
		}
	})
}

func TestOnceReturnsErrHeldDuringTheRunToACallerThatDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		for _, c := range []*holdfast.Client{a, b} {
			err := a.Once(t.Context(), "n"+c.Owner(), time.Hour, func(ctx context.Context) error {
				err := c.Once(context.Background(), "n"+c.Owner(), time.Hour, func(context.Context) error {
					t.Error("ran twice")
					return nil
				}, holdfast.Wait(0))
				want(t, err, holdfast.ErrHeld)
				wantNone(t, err, holdfast.ErrDone)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func TestOnceCanRunAgainAfterAFailedRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		boom := errors.New("boom")
		err := a.Once(t.Context(), "n", time.Hour, func(context.Context) error { return boom })
		want(t, err, boom)
		func() {
			defer func() { recover() }()
			a.Once(t.Context(), "n", time.Hour, func(context.Context) error { panic("boom") })
		}()
		ran := false
		err = b.Once(t.Context(), "n", time.Hour, func(context.Context) error { ran = true; return nil })
		if err != nil || !ran {
			t.Errorf("after a failure: %v, ran %t", err, ran)
		}
	})
}

func TestOnceReturnsErrLostIfTheLockIsLostDuringTheRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		err := a.Once(t.Context(), "n", time.Hour, func(ctx context.Context) error {
			<-ctx.Done()
			return nil // reports success
		}, holdfast.NoRenew())
		want(t, err, holdfast.ErrLost)
		time.Sleep(2 * time.Second)
		if err := b.Once(t.Context(), "n", time.Hour, func(context.Context) error { return nil }); err != nil {
			t.Errorf("the name is not open: %v", err)
		}
	})
}

func TestOnceKnowsWhetherDoneWasRecordedWhenRepliesAreLost(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			p := newProxy(s)
			p.release = func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				if p.releases.Load() == 1 {
					if recorded {
						s.Release(ctx, name, id, keep)
					} else {
						s.Break(ctx, name, id) // the request never arrives, and the grant is gone
					}
					return errNet
				}
				return s.Release(ctx, name, id, keep)
			}
			c := newClient(t, p)
			err := c.Once(t.Context(), "n", time.Hour, func(context.Context) error { return nil })
			if recorded && err != nil {
				t.Errorf("done was recorded: %v", err)
			}
			if !recorded {
				want(t, err, holdfast.ErrLost)
			}
		})
	}
}

func TestOnceWaiterTakesOverWhenTheRunnerDies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		dead, c := newClient(t, newProxy(s)), newClient(t, s)
		// This runner neither renews nor releases, as if its process had been killed.
		mustLock(t, dead, "n", holdfast.NoRenew())
		start := newClock()
		ran := false
		err := c.Once(t.Context(), "n", time.Hour, func(context.Context) error { ran = true; return nil })
		if err != nil || !ran {
			t.Errorf("%v, ran %t", err, ran)
		}
		start.wantWithin(t, 29*time.Second, 31*time.Second)
		synctest.Wait()
	})
}

func TestOnceRecordsDoneDespiteAnOpenReentrantLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		var inner *holdfast.Lease
		err := a.Once(t.Context(), "n", time.Hour, func(ctx context.Context) (err error) {
			inner, err = a.Lock(ctx, "n", holdfast.Reentrant())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, inner.Err(), holdfast.ErrNotHeld)
		want(t, inner.Unlock(t.Context()), holdfast.ErrNotHeld)
		err = b.Once(t.Context(), "n", time.Hour, func(context.Context) error {
			t.Error("ran twice")
			return nil
		})
		want(t, err, holdfast.ErrDone)
	})
}

func TestFailedOnceReleasesDespiteAnOpenReentrantLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		err := a.Once(t.Context(), "n", time.Hour, func(ctx context.Context) error {
			if _, err := a.Lock(ctx, "n", holdfast.Reentrant()); err != nil {
				t.Error(err)
			}
			return errNet
		})
		want(t, err, errNet)
		free(t, b, "n")
	})
}

func TestOnceReturnsErrDoneBehindAWaitingLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s), newClient(t, s)
		nop := func(context.Context) error { return nil }
		if err := other.Once(t.Context(), "n", time.Hour, nop); err != nil {
			t.Fatal(err)
		}
		go func() {
			if l, err := c.Lock(context.Background(), "n"); err == nil {
				l.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		start := newClock()
		err := c.Once(t.Context(), "n", time.Hour, nop, holdfast.Wait(0))
		if !errors.Is(err, holdfast.ErrDone) {
			t.Errorf("Once with Wait(0): %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		err = c.Once(ctx, "n", time.Hour, nop)
		if !errors.Is(err, holdfast.ErrDone) {
			t.Errorf("Once: %v after %v", err, time.Since(start.start))
		}
	})
}

func TestOnceThatIsDowngradedLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		err := a.Once(t.Context(), "n", time.Hour, func(ctx context.Context) error {
			return holdfast.LeaseFrom(ctx).Downgrade(ctx)
		})
		want(t, err, holdfast.ErrInvalid)
		free(t, b, "n")
	})
}

func TestOnceWithAMinHoldLongerThanItsKeepIsInvalid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		err := c.Once(t.Context(), "n", time.Second, func(context.Context) error { return nil }, holdfast.MinHold(time.Minute))
		if err != nil {
			want(t, err, holdfast.ErrInvalid)
			return
		}
		time.Sleep(2 * time.Second)
		if _, err := c.TryLock(t.Context(), "n"); err == nil {
			t.Error("the name is open before its MinHold is over")
		}
	})
}

func TestOnceBehindATryLockReturnsErrDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, other := newClient(t, p), newClient(t, s)
		if err := other.Once(t.Context(), "n", time.Hour, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			time.Sleep(100 * time.Millisecond)
			return s.Acquire(ctx, req)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.TryLock(t.Context(), "n")
			want(t, err, holdfast.ErrHeld)
		})
		synctest.Wait()
		err := c.Once(t.Context(), "n", time.Hour, func(context.Context) error { return nil }, holdfast.Wait(0))
		want(t, err, holdfast.ErrDone)
		wg.Wait()
	})
}

func TestOnceReturnsErrDoneIfItsKeepEndsAfterTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		other := newClient(t, s)
		c := newClient(t, p, holdfast.WithObserver(func(e holdfast.Event) {
			if e.Kind == holdfast.EventWaiting {
				time.Sleep(2 * time.Second) // the answer arrives meanwhile
			}
		}))
		nothing := func(context.Context) error { return nil }
		if err := other.Once(t.Context(), "n", time.Second, nothing); err != nil {
			t.Fatal(err)
		}
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			time.Sleep(100 * time.Millisecond)
			return s.Acquire(ctx, req)
		}
		var wg sync.WaitGroup
		wg.Go(func() { mustUnlock(t, mustLock(t, c, "n")) })
		synctest.Wait()
		want(t, c.Once(t.Context(), "n", time.Second, nothing), holdfast.ErrDone)
		wg.Wait()
	})
}

func TestOnceDoesNotReturnErrDoneAfterItsKeepIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, other := newClient(t, p), newClient(t, s)
		nothing := func(context.Context) error { return nil }
		if err := other.Once(t.Context(), "n", time.Second, nothing); err != nil {
			t.Fatal(err)
		}
		asked := 0
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			if asked++; asked == 2 {
				time.Sleep(2 * time.Second)
			}
			return s.Acquire(ctx, req)
		}
		var wg sync.WaitGroup
		wg.Go(func() { mustUnlock(t, mustLock(t, c, "n")) })
		time.Sleep(2 * time.Second)
		if err := c.Once(t.Context(), "n", time.Second, nothing); err != nil {
			t.Errorf("Once a second after its keep was over: %v", err)
		}
		wg.Wait()
	})
}
