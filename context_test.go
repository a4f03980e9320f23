package holdfast_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestLockingANameThatTheContextHoldsReturnsErrWouldDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		lease := mustLock(t, c, "n")
		ctx := lease.Context(t.Context())
		for _, lock := range []func(context.Context, string, ...holdfast.CallOption) (*holdfast.Lease, error){c.Lock, c.RLock} {
			_, err := lock(ctx, "n")
			want(t, err, holdfast.ErrWouldDeadlock)
		}
		// The same applies with another lease in between.
		inner, err := c.Lock(ctx, "m")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Lock(inner.Context(ctx), "n")
		want(t, err, holdfast.ErrWouldDeadlock)
		// A single attempt does not hang, so it returns ErrHeld as usual.
		_, err = c.TryLock(ctx, "n")
		want(t, err, holdfast.ErrHeld)
		wantNone(t, err, holdfast.ErrWouldDeadlock)
		// After the unlock it can be locked again.
		mustUnlock(t, lease)
		again, err := c.Lock(context.WithoutCancel(ctx), "n")
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, again)
		mustUnlock(t, inner)
	})
}

func TestReentrantLeasesShareTheGrantUntilTheLastUnlock(t *testing.T) {
	for _, outerFirst := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			p := newProxy(memstore.New())
			c, other := newClient(t, p), newClient(t, p.Store)
			outer := mustLock(t, c, "n")
			ctx := outer.Context(t.Context())
			inner, err := c.Lock(ctx, "n", holdfast.Reentrant())
			if err != nil {
				t.Fatal(err)
			}
			innermost, err := c.TryRLock(inner.Context(ctx), "n", holdfast.Reentrant())
			if err != nil {
				t.Fatal(err)
			}
			if inner.Token() != outer.Token() || innermost.Token() != outer.Token() {
				t.Error("tokens differ")
			}
			order := []*holdfast.Lease{innermost, inner, outer}
			if outerFirst {
				order = []*holdfast.Lease{outer, inner, innermost}
			}
			for i, lease := range order {
				if _, err := other.TryLock(t.Context(), "n"); err == nil {
					t.Fatalf("released after %d of 3 unlocks", i)
				}
				own := lease.Context(t.Context())
				mustUnlock(t, lease)
				want(t, own.Err(), context.Canceled)
				want(t, lease.Unlock(t.Context()), holdfast.ErrNotHeld)
				want(t, lease.Err(), holdfast.ErrNotHeld)
			}
			free(t, other, "n")
			if a, r := p.acquires.Load(), p.releases.Load(); a != 1 || r != 1 {
				t.Errorf("%d acquires, %d releases", a, r)
			}
		})
	}
}

func TestLossEndsAllReentrantLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		outer := mustLock(t, c, "n", holdfast.NoRenew())
		inner, err := c.Lock(outer.Context(t.Context()), "n", holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		work := inner.Context(t.Context())
		<-inner.Done()
		want(t, context.Cause(work), holdfast.ErrLost)
		for _, lease := range []*holdfast.Lease{inner, outer} {
			want(t, lease.Err(), holdfast.ErrLost)
			want(t, lease.Unlock(t.Context()), holdfast.ErrLost)
		}
	})
}

func TestReaderCannotBecomeAWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		reader, err := c.RLock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		ctx := reader.Context(t.Context())
		_, err = c.Lock(ctx, "n", holdfast.Reentrant())
		want(t, err, holdfast.ErrWouldDeadlock)
		permits, err := c.Semaphore("p", 3).Acquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		ctx = permits.Context(ctx)
		_, err = c.Semaphore("p", 3).Acquire(ctx, 3, holdfast.Reentrant())
		want(t, err, holdfast.ErrWouldDeadlock)
		fewer, err := c.Semaphore("p", 3).Acquire(ctx, 1, holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, fewer)
	})
}

func TestContextsOfAnotherClientAreIgnored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n")
		_, err := b.Lock(lease.Context(t.Context()), "n", holdfast.Reentrant(), holdfast.Wait(time.Second))
		want(t, err, holdfast.ErrHeld)
	})
}

func TestTokenFromReturnsTheTokenOfTheInnermostLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		if holdfast.TokenFrom(t.Context()) != 0 {
			t.Error("a token without a lease")
		}
		outer, inner := mustLock(t, c, "a"), mustLock(t, c, "b")
		ctx := inner.Context(outer.Context(t.Context()))
		if got := holdfast.TokenFrom(ctx); got != inner.Token() {
			t.Errorf("token %d, want %d", got, inner.Token())
		}
		if holdfast.LeaseFrom(ctx) != inner || holdfast.LeaseFrom(t.Context()) != nil {
			t.Error("LeaseFrom returned another lease")
		}
	})
}

func TestLeaseContextEndsWithItsParent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		lease := mustLock(t, c, "n")
		type key struct{}
		parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "v"))
		ctx := lease.Context(parent)
		if ctx.Value(key{}) != "v" {
			t.Error("the parent's values are hidden")
		}
		cancel(errNet)
		<-ctx.Done()
		want(t, context.Cause(ctx), errNet)
		if lease.Err() != nil {
			t.Error("the lease ended with a context made from it")
		}
	})
}

// A long lease must not keep the contexts that were made from it and have ended.
func TestEndedContextsAreForgotten(t *testing.T) {
	c := newClient(t, memstore.New())
	lease := mustLock(t, c, "n")
	heap := heapInUse()
	const n = 20_000
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		lease.Context(ctx)
		cancel()
		runtime.Gosched() // the clean-up runs on its own goroutine
	}
	var each uint64
	for range 100 {
		if each = (max(heapInUse(), heap) - heap) / n; each < 50 { // a context needs hundreds
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("an ended context keeps %d bytes", each)
}

// The parents live as long as the lease, so none of these contexts ends before it.
func TestALeaseDoesNotKeepTheContextsMadeFromIt(t *testing.T) {
	type key struct{}
	request := func(i int) context.Context { return context.WithValue(t.Context(), key{}, i) }
	tests := map[string]func(i int) context.Context{
		"Background":                  func(int) context.Context { return context.Background() },
		"values without cancellation": func(i int) context.Context { return context.WithoutCancel(request(i)) },
		"one parent":                  func(int) context.Context { return t.Context() },
		"values of one parent":        request,
		"contexts of another lease":   nil,
	}
	for name, parent := range tests {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, memstore.New())
			lease := mustLock(t, c, "n")
			if parent == nil {
				other := mustLock(t, c, "m")
				parent = func(i int) context.Context { return other.Context(request(i)) }
			}
			ctx := lease.Context(parent(0))
			child, cancel := context.WithCancel(lease.Context(parent(1)))
			defer cancel()
			heap := heapInUse()
			const n = 100_000
			for i := range n {
				lease.Context(parent(i))
			}
			if each := (max(heapInUse(), heap) - heap) / n; each > 20 { // an entry needs hundreds
				t.Errorf("a context keeps %d bytes", each)
			}
			if ctx.Value(key{}) != parent(0).Value(key{}) {
				t.Errorf("value %v, want that of the parent", ctx.Value(key{}))
			}
			mustUnlock(t, lease)
			want(t, context.Cause(ctx), holdfast.ErrNotHeld)
			want(t, context.Cause(child), holdfast.ErrNotHeld)
		})
	}
}

func TestContextsOfParentsThatEndDifferentlyEndLikeTheirParents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease := mustLock(t, newClient(t, memstore.New()), "n")
		late, cancelLate := context.WithTimeoutCause(t.Context(), time.Second, errNet)
		defer cancelLate()
		early, cancelEarly := context.WithCancel(late)
		contexts := []context.Context{lease.Context(late), lease.Context(early), lease.Context(t.Context())}
		child, cancelChild := context.WithCancel(contexts[0])
		defer cancelChild()
		cancelEarly()
		if contexts[0].Err() != nil || contexts[1].Err() != context.Canceled {
			t.Errorf("%v, %v, want only the second to have ended", contexts[0].Err(), contexts[1].Err())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for _, ctx := range []context.Context{contexts[0], child} {
			if ctx.Err() != context.DeadlineExceeded || context.Cause(ctx) != errNet {
				t.Errorf("%v because of %v, want the error and the cause of the parent", ctx.Err(), context.Cause(ctx))
			}
		}
		deadline, _ := late.Deadline()
		if got, ok := contexts[0].Deadline(); !ok || got != deadline {
			t.Errorf("deadline %v, %v", got, ok)
		}
		if contexts[2].Err() != nil {
			t.Error("a context ended with the parent of another")
		}
		mustUnlock(t, lease)
		want(t, context.Cause(contexts[2]), holdfast.ErrNotHeld)
		want(t, context.Cause(contexts[0]), errNet)
	})
}

// A valueless context is one whose cause package context cannot find.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }

func TestAParentDoesNotChangeTheCauseOfContextsOfOtherParents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease := mustLock(t, newClient(t, memstore.New()), "n")
		parent, cancel := context.WithCancelCause(t.Context())
		hidden := lease.Context(valueless{parent})
		ctx := lease.Context(parent)
		cancel(errNet)
		<-hidden.Done()
		<-ctx.Done()
		want(t, context.Cause(hidden), context.Cause(valueless{parent}))
		want(t, context.Cause(ctx), errNet)
	})
}

// An asking context uses the lease in its methods.
type asking struct {
	context.Context
	lease *holdfast.Lease
}

func (a asking) Done() <-chan struct{} {
	a.lease.Err()
	return a.Context.Done()
}

func (a asking) Value(any) any { return a.lease.Err() }

func TestMethodsOfAParentMayUseTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lease := mustLock(t, newClient(t, memstore.New()), "n")
		parent := asking{t.Context(), lease}
		held := lease.Context(parent)
		mustUnlock(t, lease)
		for _, ctx := range []context.Context{held, lease.Context(parent)} {
			want(t, context.Cause(ctx), holdfast.ErrNotHeld)
		}
	})
}

func TestEndedReentrantLeasesAreForgotten(t *testing.T) {
	c := newClient(t, memstore.New())
	outer := mustLock(t, c, "n")
	ctx := outer.Context(t.Context())
	heap := heapInUse()
	const n = 20_000
	for range n {
		inner, err := c.Lock(ctx, "n", holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, inner)
	}
	if each := (max(heapInUse(), heap) - heap) / n; each > 20 {
		t.Errorf("an ended lease keeps %d bytes", each)
	}
	mustUnlock(t, outer)
}

func TestEndedLeaseStillReportsItsProperties(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		lease := mustLock(t, c, "n")
		token, id := lease.Token(), lease.ID()
		done := lease.Done()
		mustUnlock(t, lease)
		synctest.Wait()
		if !isDone(done) || lease.Token() != token || lease.ID() != id || lease.Name() != "n" || lease.Mode() != store.Exclusive || lease.Deadline().IsZero() {
			t.Error("an ended lease forgot what it was")
		}
	})
}

func TestUnlockingAReentrantLeaseClosesItsOwnDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		outer := mustLock(t, c, "n")
		inner, err := c.Lock(outer.Context(t.Context()), "n", holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		done := inner.Done()
		mustUnlock(t, inner)
		if !isDone(done) || !isDone(inner.Done()) {
			t.Errorf("Err is %v but Done is open", inner.Err())
		}
		mustUnlock(t, outer)
	})
}

func TestReentrantLeaseCannotDowngradeASharedGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		outer := mustLock(t, a, "n")
		inner, err := a.Lock(outer.Context(t.Context()), "n", holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		err = inner.Downgrade(t.Context())
		if _, rerr := b.TryRLock(t.Context(), "n"); rerr == nil {
			t.Errorf("the mode of the outer lease changed to %v, Downgrade: %v", outer.Mode(), err)
		}
	})
}

// The test runs in real time: two leases share a grant, and another goroutine releases it with the
// last unlock.
func TestReentrantContextsEndBeforeTheNextGrant(t *testing.T) {
	s := memstore.New()
	c, other := newClient(t, s), newClient(t, s)
	for range 300 {
		outer := mustLock(t, c, "n")
		inner, err := c.Lock(outer.Context(context.Background()), "n", holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		contexts := []context.Context{outer.Context(context.Background()), inner.Context(context.Background())}
		var wg sync.WaitGroup
		wg.Go(func() { mustUnlock(t, outer) })
		wg.Go(func() { mustUnlock(t, inner) })
		next := mustLock(t, other, "n")
		for i, ctx := range contexts {
			if ctx.Err() == nil {
				t.Fatalf("the context of lease %d lives though another holds the lock", i)
			}
		}
		wg.Wait()
		mustUnlock(t, next)
	}
}

func TestConcurrentReentrantLockAndDowngradeDoNotBothSucceed(t *testing.T) {
	c := newClient(t, memstore.New())
	for range 20000 {
		lease := mustLock(t, c, "n")
		ctx := lease.Context(t.Context())
		var inner *holdfast.Lease
		var wg sync.WaitGroup
		wg.Go(func() { inner, _ = c.Lock(ctx, "n", holdfast.Reentrant()) })
		err := lease.Downgrade(ctx)
		wg.Wait()
		if err == nil && inner != nil {
			t.Fatal("an exclusive lease on a shared grant")
		}
		if inner != nil {
			inner.Unlock(t.Context())
		}
		lease.Unlock(t.Context())
	}
}

func TestANilContextCarriesNothing(t *testing.T) {
	var none context.Context
	if holdfast.TokenFrom(none) != 0 || holdfast.LeaseFrom(none) != nil {
		t.Error("a lease in a nil context")
	}
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		lease := mustLock(t, c, "n")
		ctx := lease.Context(none)
		if holdfast.TokenFrom(ctx) != lease.Token() || ctx.Err() != nil {
			t.Errorf("token %d, %v", holdfast.TokenFrom(ctx), ctx.Err())
		}
		mustUnlock(t, lease)
		want(t, context.Cause(ctx), holdfast.ErrNotHeld)
	})
}
