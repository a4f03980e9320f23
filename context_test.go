package holdfast_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// inner locks "n" again under a lease.
func (w *world) inner(outer *holdfast.Lease) *holdfast.Lease {
	w.Helper()
	lease, err := w.c.Lock(outer.Context(w.Context()), "n", holdfast.Reentrant())
	must(w, err)
	return lease
}

func TestReentrant(t *testing.T) {
	scenarios{
		"locking a name that the context holds returns ErrWouldDeadlock": func(w *world) {
			lease := w.lock(w.c)
			ctx := lease.Context(w.Context())
			middle, err := w.c.Lock(ctx, "m")
			must(w, err)
			for _, lock := range []func(context.Context, string, ...holdfast.CallOption) (*holdfast.Lease, error){w.c.Lock, w.c.RLock} {
				for _, ctx := range []context.Context{ctx, middle.Context(ctx)} {
					want(w, errOf(lock(ctx, "n")), holdfast.ErrWouldDeadlock)
				}
			}
			_, err = w.c.TryLock(ctx, "n") // does not hang
			want(w, err, holdfast.ErrHeld)
			wantNone(w, err, holdfast.ErrWouldDeadlock)
			_, err = w.other.Lock(ctx, "n", holdfast.Wait(time.Second)) // the context is of another client
			want(w, err, holdfast.ErrHeld)
			mustUnlock(w, lease)
			must(w, errOf(w.c.Lock(context.WithoutCancel(ctx), "n")))
		},
		"leases share the grant until the last unlock": func(w *world) {
			for round, order := range [][]int{{2, 1, 0}, {0, 1, 2}} {
				outer := w.lock(w.c)
				inner := w.inner(outer)
				innermost, err := w.c.TryRLock(inner.Context(w.Context()), "n", holdfast.Reentrant())
				must(w, err)
				leases := []*holdfast.Lease{outer, inner, innermost}
				for _, i := range order {
					lease := leases[i]
					equal(w, "token", lease.Token(), outer.Token())
					want(w, w.try(w.other), holdfast.ErrHeld)
					own := lease.Context(w.Context())
					mustUnlock(w, lease)
					if own.Err() == nil || !isDone(lease.Done()) {
						w.Error("a context or Done of an unlocked lease is open")
					}
					want(w, lease.Unlock(w.Context()), holdfast.ErrNotHeld)
					want(w, lease.Err(), holdfast.ErrNotHeld)
				}
				w.free("n")
				w.asked(int64(round+1), 0, int64(round+1))
			}
		},
		"a loss ends all leases": func(w *world) {
			outer := w.lock(w.c, holdfast.NoRenew())
			inner := w.inner(outer)
			work := inner.Context(w.Context())
			<-inner.Done()
			want(w, context.Cause(work), holdfast.ErrLost)
			for _, lease := range []*holdfast.Lease{inner, outer} {
				want(w, lease.Err(), holdfast.ErrLost)
				want(w, lease.Unlock(w.Context()), holdfast.ErrLost)
			}
		},
		"a reader cannot become a writer, and permits do not grow": func(w *world) {
			reader := w.read(w.c)
			ctx := reader.Context(w.Context())
			want(w, errOf(w.c.Lock(ctx, "n", holdfast.Reentrant())), holdfast.ErrWouldDeadlock)
			gpus := w.c.Semaphore("p", 3)
			permits, err := gpus.Acquire(w.Context(), 2)
			must(w, err)
			ctx = permits.Context(ctx)
			want(w, errOf(gpus.Acquire(ctx, 3, holdfast.Reentrant())), holdfast.ErrWouldDeadlock)
			_, err = w.c.Semaphore("p", 4).Acquire(ctx, 1, holdfast.Reentrant())
			invalid(w, "another limit", err, "a limit of 4, but the name is in use for permits with a limit of 3")
			must(w, errOf(gpus.Acquire(ctx, 1, holdfast.Reentrant())))
		},
		"an inner lease cannot downgrade the grant": func(w *world) {
			want(w, w.inner(w.lock(w.c)).Downgrade(w.Context()), holdfast.ErrInvalid)
			want(w, errOf(w.other.TryRLock(w.Context(), "n")), holdfast.ErrHeld)
		},
	}.run(t)
}

// A valueless context is one whose cause package context cannot find.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }

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

func TestLeaseContexts(t *testing.T) {
	type key struct{}
	scenarios{
		"TokenFrom returns the token of the innermost lease": func(w *world) {
			var none context.Context
			if holdfast.TokenFrom(none) != 0 || fence.TokenFrom(none) != 0 || holdfast.LeaseFrom(none) != nil || holdfast.TokenFrom(w.Context()) != 0 {
				w.Error("a token without a lease")
			}
			outer, inner := w.lock(w.c), mustLock(w, w.c, "b")
			ctx := inner.Context(outer.Context(none))
			equal(w, "token", holdfast.TokenFrom(ctx), inner.Token())
			equal(w, "lease", holdfast.LeaseFrom(ctx), inner)
			mustUnlock(w, outer)
			want(w, context.Cause(ctx), holdfast.ErrNotHeld)
		},
		"a context ends with its parent, and has its values": func(w *world) {
			lease := w.lock(w.c)
			parent, cancel := context.WithCancelCause(context.WithValue(w.Context(), key{}, "v"))
			ctx := lease.Context(parent)
			equal(w, "value", ctx.Value(key{}), any("v"))
			cancel(errNet)
			<-ctx.Done()
			want(w, context.Cause(ctx), errNet)
			must(w, lease.Err())
		},
		"contexts of parents that end differently end like their parents": func(w *world) {
			lease := w.lock(w.c)
			late, cancelLate := context.WithTimeoutCause(w.Context(), time.Second, errNet)
			defer cancelLate()
			early, cancelEarly := context.WithCancel(late)
			ofLate, ofEarly, never := lease.Context(late), lease.Context(early), lease.Context(w.Context())
			child, cancelChild := context.WithCancel(ofLate)
			defer cancelChild()
			cancelEarly()
			if ofLate.Err() != nil || ofEarly.Err() != context.Canceled {
				w.Errorf("%v, %v, want only the second to have ended", ofLate.Err(), ofEarly.Err())
			}
			time.Sleep(time.Second)
			synctest.Wait()
			for _, ctx := range []context.Context{ofLate, child} {
				if ctx.Err() != context.DeadlineExceeded || context.Cause(ctx) != errNet {
					w.Errorf("%v because of %v, want the error and the cause of the parent", ctx.Err(), context.Cause(ctx))
				}
			}
			deadline, _ := late.Deadline()
			if got, ok := ofLate.Deadline(); !ok || got != deadline {
				w.Errorf("deadline %v, %v", got, ok)
			}
			must(w, never.Err())
			mustUnlock(w, lease)
			want(w, context.Cause(never), holdfast.ErrNotHeld)
			want(w, context.Cause(ofLate), errNet)
		},
		"a parent does not change the cause of contexts of other parents": func(w *world) {
			lease := w.lock(w.c)
			parent, cancel := context.WithCancelCause(w.Context())
			hidden, ctx := lease.Context(valueless{parent}), lease.Context(parent)
			cancel(errNet)
			<-hidden.Done()
			<-ctx.Done()
			want(w, context.Cause(hidden), context.Cause(valueless{parent}))
			want(w, context.Cause(ctx), errNet)
		},
		"methods of a parent may use the lease": func(w *world) {
			lease := w.lock(w.c)
			parent := asking{w.Context(), lease}
			held := lease.Context(parent)
			mustUnlock(w, lease)
			for _, ctx := range []context.Context{held, lease.Context(parent)} {
				want(w, context.Cause(ctx), holdfast.ErrNotHeld)
			}
		},
	}.run(t)
}

// A long lease must not keep the contexts that were made from it, or the leases that shared its grant.
func TestALeaseDoesNotGrow(t *testing.T) {
	type key struct{}
	request := func(i int) context.Context { return context.WithValue(t.Context(), key{}, i) }
	c := newClient(t, memstore.New())
	lease, other := mustLock(t, c, "n"), mustLock(t, c, "m")
	ctx := lease.Context(t.Context())
	child, cancel := context.WithCancel(lease.Context(request(1)))
	defer cancel()
	for what, add := range map[string]func(i int){
		"Background":                  func(int) { lease.Context(context.Background()) },
		"values without cancellation": func(i int) { lease.Context(context.WithoutCancel(request(i))) },
		"values of one parent":        func(i int) { lease.Context(request(i)) },
		"contexts of another lease":   func(i int) { lease.Context(other.Context(request(i))) },
		"parents that end": func(int) {
			ctx, cancel := context.WithCancel(t.Context())
			lease.Context(ctx)
			cancel()
			runtime.Gosched() // the clean-up runs on its own goroutine
		},
		"reentrant leases": func(int) {
			inner, err := c.Lock(ctx, "n", holdfast.Reentrant())
			must(t, err)
			mustUnlock(t, inner)
		},
	} {
		heap := heapInUse()
		const n = 20_000
		for i := range n {
			add(i)
		}
		each := uint64(100)
		for range 100 {
			if each = (max(heapInUse(), heap) - heap) / n; each < 40 { // an entry needs hundreds
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if each >= 40 {
			t.Errorf("%s: each keeps %d bytes", what, each)
		}
	}
	mustUnlock(t, lease)
	want(t, context.Cause(ctx), holdfast.ErrNotHeld)
	want(t, context.Cause(child), holdfast.ErrNotHeld)
}

// The tests below run in real time: two leases share a grant, and both are used at the same moment.

func TestReentrantContextsEndBeforeTheNextGrant(t *testing.T) {
	s := memstore.New()
	c, other := newClient(t, s), newClient(t, s)
	for range 300 {
		outer := mustLock(t, c, "n")
		inner, err := c.Lock(outer.Context(context.Background()), "n", holdfast.Reentrant())
		must(t, err)
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
	for range 10_000 {
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

func TestEndedLeaseStillReportsItsProperties(t *testing.T) {
	lease := mustLock(t, newClient(t, memstore.New()), "n")
	token, id := lease.Token(), lease.ID()
	mustUnlock(t, lease)
	if lease.Token() != token || lease.ID() != id || lease.Name() != "n" || lease.Mode() != store.Exclusive || lease.Deadline().IsZero() {
		t.Error("an ended lease forgot what it was")
	}
}
