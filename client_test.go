package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
)

func TestTwoClientsNeverHoldOneNameAtTheSameTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n")
		_, err := b.TryLock(t.Context(), "n")
		want(t, err, holdfast.ErrHeld)
		mustUnlock(t, lease)
		mustUnlock(t, mustLock(t, b, "n"))
	})
}

func TestTryLockNamesTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n", holdfast.Meta("nightly backup"))
		time.Sleep(3 * time.Second)
		_, err := b.TryLock(t.Context(), "n")
		var held *holdfast.HeldError
		if !errors.As(err, &held) {
			t.Fatalf("%v is not a HeldError", err)
		}
		h := held.Holders[0]
		if h.Owner != "alice" || h.Meta != "nightly backup" || h.Token != lease.Token() || h.ID != lease.ID() || h.Left != 27*time.Second || h.Age != 3*time.Second {
			t.Errorf("holder is %+v", h)
		}
		const text = `holdfast: try lock "n": held by alice for 3s, 27s left unless renewed (nightly backup)`
		if err.Error() != text {
			t.Errorf("error reads\n%s\nwant\n%s", err, text)
		}
	})
}

func TestTryLockFindsALocalHolderWithoutAskingTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p, holdfast.WithOwner("me"))
		lease := mustLock(t, c, "n")
		_, err := c.TryLock(t.Context(), "n")
		want(t, err, holdfast.ErrHeld)
		var held *holdfast.HeldError
		errors.As(err, &held)
		if h := held.Holders[0]; h.Owner != "me" || h.Token != lease.Token() || h.ID != lease.ID() {
			t.Errorf("holder is %+v", h)
		}
		if n := p.acquires.Load(); n != 1 {
			t.Errorf("the store was asked %d times, want once", n)
		}
	})
}

func TestReadersShareAndWritersDoNot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		ctx := t.Context()
		r1, err1 := a.RLock(ctx, "n")
		r2, err2 := b.RLock(ctx, "n")
		r3, err3 := a.TryRLock(ctx, "n")
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		_, err := b.TryLock(ctx, "n")
		want(t, err, holdfast.ErrHeld)
		for _, r := range []*holdfast.Lease{r1, r2, r3} {
			mustUnlock(t, r)
		}
		mustUnlock(t, mustLock(t, b, "n"))
	})
}

func TestPermitsAreGrantedUpToTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		ctx := t.Context()
		first, err := a.Semaphore("gpu", 3).Acquire(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		second, err := b.Semaphore("gpu", 3).TryAcquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Semaphore("gpu", 3).TryAcquire(ctx, 1)
		want(t, err, holdfast.ErrHeld)
		_, err = b.Semaphore("gpu", 4).TryAcquire(ctx, 1)
		want(t, err, holdfast.ErrInvalid)
		for _, number := range []string{"3", "4"} {
			if !strings.Contains(err.Error(), number) {
				t.Errorf("%q does not name the limit %s", err, number)
			}
		}
		mustUnlock(t, first)
		third, err := b.Semaphore("gpu", 3).Acquire(ctx, 2)
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, second)
		mustUnlock(t, third)
	})
}

func TestDoHoldsTheLockAndCarriesTheToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		var token int64
		err := a.Do(t.Context(), "n", func(ctx context.Context) error {
			token = holdfast.TokenFrom(ctx)
			_, err := b.TryLock(ctx, "n")
			want(t, err, holdfast.ErrHeld)
			return nil
		})
		if err != nil || token <= 0 {
			t.Errorf("Do: %v, token %d", err, token)
		}
		free(t, b, "n")
	})
}

func TestDoReturnsTheErrorOfTheFunction(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		boom := errors.New("boom")
		if err := a.Do(t.Context(), "n", func(context.Context) error { return boom }); err != boom {
			t.Errorf("Do: %v, want the error itself", err)
		}
		free(t, b, "n")
	})
}

func TestDoUnlocksWhenTheFunctionPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not reach the caller")
				}
			}()
			a.Do(t.Context(), "n", func(context.Context) error { panic("boom") })
		}()
		free(t, b, "n")
	})
}

func TestDoCancelsTheFunctionAndReturnsErrLostOnLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.renew = failRenew
		c := newClient(t, p)
		start := newClock()
		var cause error
		err := c.Do(t.Context(), "n", func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		})
		start.want(t, 29*time.Second) // the TTL minus its margin
		want(t, cause, holdfast.ErrLost, errNet)
		want(t, err, holdfast.ErrLost, context.Canceled)
	})
}

func TestLeaseOutlivesTheContextThatAcquiredIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		lease, err := a.Lock(ctx, "n")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(5 * time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("the lease ended with its context: %v", err)
		}
		mustUnlock(t, lease)
	})
}

func TestEndedWaitReportsTheHolderAndTheReason(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		defer mustLock(t, a, "n").Unlock(context.Background())

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := b.Lock(ctx, "n")
		want(t, err, holdfast.ErrHeld, context.DeadlineExceeded)

		stop := errors.New("shutting down")
		ctx2, cancel2 := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel2(stop) })
		_, err = b.Lock(ctx2, "n")
		want(t, err, holdfast.ErrHeld, stop)

		start := newClock()
		_, err = b.Lock(t.Context(), "n", holdfast.Wait(2*time.Second))
		want(t, err, holdfast.ErrHeld, context.DeadlineExceeded)
		start.want(t, 2*time.Second)
		if text := `holdfast: lock "n": held by alice for 4s, 26s left unless renewed, place 1 in the queue: waited 2s`; err.Error() != text {
			t.Errorf("error reads\n%s\nwant\n%s", err, text)
		}

		_, err = b.Lock(t.Context(), "n", holdfast.Wait(0))
		want(t, err, holdfast.ErrHeld)
		wantNone(t, err, context.DeadlineExceeded)
	})
}

func TestEndedContextDoesNotReachTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Lock(ctx, "n")
		want(t, err, context.Canceled)
		if n := p.acquires.Load(); n != 0 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

func TestPrefixesSeparateNamespaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		shop, blog := newClient(t, s, holdfast.WithPrefix("shop:")), newClient(t, s, holdfast.WithPrefix("blog:"))
		plain := newClient(t, s)
		lease := mustLock(t, shop, "n")
		if lease.Name() != "n" {
			t.Errorf("name %q", lease.Name())
		}
		free(t, blog, "n")
		free(t, plain, "n")
		_, err := plain.TryLock(t.Context(), "shop:n")
		want(t, err, holdfast.ErrHeld)
		mustUnlock(t, lease)
	})
}

func TestDifferentNamesAreIndependent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t)
		for _, name := range []string{"n", "N", "n ", "n/1", "\u00e9", "e\u0301"} {
			if _, err := a.TryLock(t.Context(), name); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}
	})
}

func TestLossNamesTheLockAndIsReportedOnce(t *testing.T) {
	const text = `"order:42": lost: its TTL of 30s is over and it was not renewed`
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		var seen *holdfast.Lease
		err := c.Do(t.Context(), "order:42", func(ctx context.Context) error {
			seen = holdfast.LeaseFrom(ctx)
			<-ctx.Done()
			return fmt.Errorf("step 3: %w", context.Cause(ctx))
		}, holdfast.NoRenew())
		want(t, err, holdfast.ErrLost)
		if err.Error() != "step 3: holdfast: lease "+text {
			t.Errorf("error reads %q", err)
		}
		if err := seen.Err(); err.Error() != "holdfast: lease "+text {
			t.Errorf("Err reads %q", err)
		}
		if err := seen.Unlock(t.Context()); err.Error() != `holdfast: unlock "order:42": not held` {
			t.Errorf("Unlock returns %q", err)
		}
		err = c.Do(t.Context(), "order:42", func(ctx context.Context) error {
			<-ctx.Done()
			return errNet
		}, holdfast.NoRenew())
		want(t, err, holdfast.ErrLost, errNet)
		if err.Error() != "holdfast: do "+text+"; "+errNet.Error() {
			t.Errorf("error reads %q", err)
		}
	})
}

// An owner and a meta come from whoever can write to the store, and errors are logged.
func TestErrorsEscapeTextFromTheStore(t *testing.T) {
	err := &holdfast.HeldError{Holders: []holdfast.Holder{{Owner: "web\n\x1b[31m", Meta: "x\r\u202e\u009b"}}}
	if text := err.Error(); strings.ContainsAny(text, "\n\r\x1b\u202e\u009b") || !strings.Contains(text, `web\u000a\u001b[31m`) {
		t.Errorf("%q", text)
	}
}
