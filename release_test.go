package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A hungList does not answer a List.
type hungList struct{ *proxy }

func (hungList) List(ctx context.Context, _ store.Query) (store.Page, error) {
	return store.Page{}, hang(ctx)
}

func TestUnlock(t *testing.T) {
	scenarios{
		// Four other libraries left the lock held if the context had ended.
		"it works on a cancelled context, and the lease outlives it": func(w *world) {
			ctx, cancel := context.WithCancel(w.Context())
			lease, err := w.c.Lock(ctx, "n")
			must(w, err)
			cancel()
			time.Sleep(5 * time.Minute)
			must(w, lease.Unlock(ctx))
			w.free("n")
		},
		"a second unlock returns ErrNotHeld": func(w *world) {
			lease := w.lock(w.c)
			mustUnlock(w, lease)
			next := w.lock(w.other)
			want(w, lease.Unlock(w.Context()), holdfast.ErrNotHeld)
			want(w, lease.Err(), holdfast.ErrNotHeld)
			must(w, next.Renew(w.Context()))
		},
		"it reports that the grant was gone, and does not touch the next holder": func(w *world) {
			c, seen := w.observed()
			lease := w.lock(c)
			w.breaks(lease)
			next := w.lock(w.other)
			want(w, lease.Unlock(w.Context()), holdfast.ErrLost)
			if e := seen.last(holdfast.EventLost); e.Reason != "gone" || !errors.Is(e.Err, holdfast.ErrLost) {
				w.Errorf("observed %+v", e)
			}
			must(w, next.Renew(w.Context()))
		},
		"contexts end before the release": func(w *world) {
			lease := w.lock(w.c)
			work := lease.Context(w.Context())
			w.p.release.set(func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				if work.Err() == nil {
					w.Error("the work continues while the lock is released")
				}
				return w.s.Release(ctx, name, id, keep)
			})
			mustUnlock(w, lease)
			want(w, context.Cause(work), holdfast.ErrNotHeld)
			want(w, context.Cause(lease.Context(w.Context())), holdfast.ErrNotHeld)
		},
		"a lost reply is retried": func(w *world) {
			w.p.release.set(func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				err := w.s.Release(ctx, name, id, keep)
				if w.p.release.calls() < 3 {
					return errNet
				}
				return err
			})
			mustUnlock(w, w.lock(w.c)) // the first attempt released it
			w.asked(1, 0, 3)
		},
		"it is bounded and continues in the background": func(w *world) {
			lease := w.lock(w.c, holdfast.TTL(time.Minute))
			w.p.fail(errNet)
			err := lease.Unlock(w.Context())
			want(w, err, holdfast.ErrUnavailable, errNet)
			wantNone(w, err, holdfast.ErrLost)
			w.within(3*time.Second, 5*time.Second)
			if !strings.Contains(err.Error(), "expires in") {
				w.Errorf("error reads %q", err)
			}
			w.p.heal()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			w.free("n") // long before its TTL
		},
		"it is bounded if the store hangs after an attempt whose reply was lost": func(w *world) {
			lease := w.lock(newClient(w, hungList{w.p}), holdfast.MinHold(time.Minute))
			w.p.release.set(func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				err := w.s.Release(ctx, name, id, keep)
				if w.p.release.calls() == 1 {
					return hang(ctx)
				}
				return err
			})
			want(w, lease.Unlock(w.Context()), holdfast.ErrUnavailable)
			w.within(3*time.Second, 5*time.Second)
		},
		"Close finishes a release that is being retried": func(w *world) {
			lease := w.lock(w.c)
			w.p.fail(errNet)
			go lease.Unlock(w.Context())
			synctest.Wait() // the call waits before the second attempt
			w.p.heal()
			w.c.Close()
			w.free("n")
		},
	}.run(t)
}

func TestMinHold(t *testing.T) {
	minHold := holdfast.MinHold(10 * time.Second)
	scenarios{
		"it keeps the name closed for the remaining time": func(w *world) {
			lease := w.lock(w.c, minHold)
			time.Sleep(2 * time.Second)
			mustUnlock(w, lease)
			err := w.try(w.other)
			var held *holdfast.HeldError
			if !errors.As(err, &held) || held.Holders[0].State != store.Cooling || held.Holders[0].Left != 8*time.Second {
				w.Errorf("TryLock: %v", err)
			}
			equal(w, "error", err.Error(), `holdfast: try lock "n": in cool-down after release by alice, free in 8s`)
			mustUnlock(w, w.lock(w.c)) // also for the same client
			w.took(10 * time.Second)
			lease = w.lock(w.c, minHold)
			time.Sleep(11 * time.Second)
			mustUnlock(w, lease)
			w.free("n")
		},
		"it delays the hand-over, and applies to a lease that was handed over": func(w *world) {
			lease := w.lock(w.c, minHold)
			served := w.lineUp(2, 0, w.c)
			mustUnlock(w, lease)
			served()
			w.within(10*time.Second, 10*time.Second+2*time.Millisecond)
			lease = w.lock(w.c)
			got := w.later(w.c, minHold)
			mustUnlock(w, lease)
			w.mark()
			mustUnlock(w, <-got)
			w.lock(w.other)
			w.within(10*time.Second, 10*time.Second+2*time.Millisecond)
		},
		"it begins with the reply": func(w *world) {
			w.p.slow(time.Second, 0)
			mustUnlock(w, w.lock(w.c, minHold))
			w.lock(w.other)
			w.within(11*time.Second, 11*time.Second+2*time.Millisecond)
			w.mark()
			set, err := w.c.LockAll(w.Context(), []string{"a", "b"}, minHold)
			must(w, err)
			must(w, set.Unlock(w.Context()))
			mustLock(w, w.other, "b")
			mustLock(w, w.other, "a")
			w.within(12*time.Second, 12*time.Second+2*time.Millisecond)
		},
		"it does not include time in the queue": func(w *world) {
			c := w.client(holdfast.WithHandover(0, 0))
			first := w.lock(c)
			got := w.later(c, minHold)
			time.Sleep(11 * time.Second)
			mustUnlock(w, first)
			mustUnlock(w, <-got)
			want(w, w.try(w.other), holdfast.ErrHeld)
		},
		"it has no effect after its end if the reply to the release is lost": func(w *world) {
			c, seen := w.observed()
			lease := w.lock(c, minHold)
			time.Sleep(10*time.Second - 10*time.Millisecond)
			w.p.release.set(func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				err := w.s.Release(ctx, name, id, keep)
				if w.p.release.calls() == 1 {
					time.Sleep(20 * time.Millisecond)
					return errNet
				}
				return err
			})
			mustUnlock(w, lease)
			equal(w, "losses", seen.count(holdfast.EventLost), 0)
		},
		"it is not longer after an outage": func(w *world) {
			lease := w.lock(w.c, minHold)
			w.p.fail(errNet)
			want(w, lease.Unlock(w.Context()), holdfast.ErrUnavailable)
			time.Sleep(2 * time.Second)
			w.p.heal()
			w.lock(w.other)
			w.within(10*time.Second, 10*time.Second+2*time.Millisecond)
		},
		"Close honours it": func(w *world) {
			w.lock(w.c, minHold)
			w.c.Close()
			want(w, w.try(w.other), holdfast.ErrHeld)
		},
	}.run(t)
}

func TestConcurrentUnlocksReleaseOnce(t *testing.T) {
	p := newProxy(memstore.New())
	c := newClient(t, p)
	const rounds = 100
	var released atomic.Int64
	for range rounds {
		lease := mustLock(t, c, "n")
		together(8, func(int) {
			if err := lease.Unlock(t.Context()); err == nil {
				released.Add(1)
			} else {
				want(t, err, holdfast.ErrNotHeld)
			}
		})
	}
	if n := p.release.calls(); released.Load() != rounds || n != rounds {
		t.Errorf("%d unlocks succeeded with %d releases", released.Load(), n)
	}
}
