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
	"github.com/holdfast-lock/holdfast/store"
)

// once runs fn once under "n".
func (w *world) once(c *holdfast.Client, keep time.Duration, fn func(context.Context) error, opts ...holdfast.CallOption) error {
	return c.Once(context.Background(), "n", keep, fn, opts...)
}

func (w *world) mustNotRun(context.Context) error {
	w.Error("ran twice")
	return nil
}

func TestOnce(t *testing.T) {
	scenarios{
		"it runs once for concurrent callers": func(w *world) {
			var runs, done atomic.Int64
			together(50, func(i int) {
				c := []*holdfast.Client{w.c, w.other}[i%2]
				err := w.once(c, time.Hour, func(context.Context) error {
					runs.Add(1)
					time.Sleep(time.Second)
					return nil
				})
				if errors.Is(err, holdfast.ErrDone) {
					done.Add(1)
				} else {
					must(w, err)
				}
			})
			w.took(time.Second) // all callers return at once
			if runs.Load() != 1 || done.Load() != 49 {
				w.Errorf("ran %d times, %d were told that it is done", runs.Load(), done.Load())
			}
		},
		"it stays done for the given time": func(w *world) {
			must(w, w.once(w.c, time.Hour, nothing))
			time.Sleep(time.Hour - time.Millisecond)
			err := w.once(w.other, time.Hour, w.mustNotRun)
			want(w, err, holdfast.ErrDone)
			wantNone(w, err, holdfast.ErrHeld)
			equal(w, "error", err.Error(), `holdfast: once "n": already done by alice`)
			err = w.try(w.other)
			want(w, err, holdfast.ErrHeld)
			if !strings.Contains(err.Error(), "closed: done by alice 1h0m0s ago, kept for another 1ms") {
				w.Errorf("error reads %q", err)
			}
			time.Sleep(time.Millisecond)
			must(w, w.once(w.other, time.Hour, nothing))
		},
		"a caller that does not wait gets ErrHeld during the run": func(w *world) {
			must(w, w.once(w.c, time.Hour, func(ctx context.Context) error {
				for _, c := range []*holdfast.Client{w.c, w.other} {
					err := w.once(c, time.Hour, w.mustNotRun, holdfast.Wait(0))
					want(w, err, holdfast.ErrHeld)
					wantNone(w, err, holdfast.ErrDone)
				}
				return nil
			}))
		},
		"it can run again after a run that failed, panicked, was lost or was downgraded": func(w *world) {
			want(w, w.once(w.c, time.Hour, func(context.Context) error { return errNet }), errNet)
			w.free("n")
			boom := func(context.Context) error { panic("boom") }
			equal(w, "panic of Once", panicOf(func() { w.once(w.c, time.Hour, boom) }), any("boom"))
			w.free("n")
			want(w, w.once(w.c, time.Hour, func(ctx context.Context) error {
				<-ctx.Done()
				return nil // reports success
			}, holdfast.NoRenew()), holdfast.ErrLost)
			time.Sleep(2 * time.Second)
			w.free("n")
			want(w, w.once(w.c, time.Hour, func(ctx context.Context) error {
				return holdfast.LeaseFrom(ctx).Downgrade(ctx)
			}), holdfast.ErrInvalid)
			w.free("n")
		},
		"it knows whether done was recorded when replies are lost": func(w *world) {
			var execute releaseFunc
			w.p.release.set(func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				if w.p.release.calls()%2 == 1 {
					execute(ctx, name, id, keep)
					return errNet
				}
				return w.s.Release(ctx, name, id, keep)
			})
			// The request never arrives, and the grant is gone.
			execute = func(ctx context.Context, name string, id store.ID, _ store.Keep) error {
				return w.s.Break(ctx, name, id)
			}
			want(w, w.once(w.c, time.Hour, nothing), holdfast.ErrLost)
			execute = w.s.Release
			must(w, w.once(w.c, time.Hour, nothing))
		},
		"a waiter takes over when the runner dies": func(w *world) {
			w.lock(w.c, holdfast.NoRenew())
			must(w, w.once(w.other, time.Hour, nothing))
			w.within(29*time.Second, 31*time.Second)
		},
		"it ends reentrant leases that are open": func(w *world) {
			for _, result := range []error{errNet, nil} {
				var inner *holdfast.Lease
				err := w.once(w.c, time.Hour, func(ctx context.Context) (err error) {
					inner, err = w.c.Lock(ctx, "n", holdfast.Reentrant())
					must(w, err)
					return result
				})
				equal(w, "error of Once", err, result)
				want(w, inner.Err(), holdfast.ErrNotHeld)
				want(w, inner.Unlock(w.Context()), holdfast.ErrNotHeld)
				if result != nil {
					w.free("n")
				}
			}
			want(w, w.once(w.other, time.Hour, w.mustNotRun), holdfast.ErrDone)
		},
		"a reentrant lease that outlives it does not touch the next holder": func(w *world) {
			var inner *holdfast.Lease
			var got <-chan *holdfast.Lease
			want(w, w.once(w.c, time.Hour, func(ctx context.Context) (err error) {
				inner, err = w.c.Lock(ctx, "n", holdfast.Reentrant())
				must(w, err)
				got = w.later(w.c)
				return errNet
			}), errNet)
			w.p.renew.set(failRenew)
			<-(<-got).Done()
			want(w, inner.Unlock(w.Context()), holdfast.ErrNotHeld)
			synctest.Wait()
			want(w, w.try(w.other), holdfast.ErrHeld) // the next holder has its margin
		},
		"it returns ErrDone behind a waiting Lock": func(w *world) {
			must(w, w.once(w.other, time.Hour, nothing))
			w.laterErr(w.Context(), w.c)
			want(w, w.once(w.c, time.Hour, w.mustNotRun, holdfast.Wait(0)), holdfast.ErrDone)
			want(w, w.once(w.c, time.Hour, w.mustNotRun, holdfast.Wait(30*time.Minute)), holdfast.ErrDone)
			w.took(0)
			time.Sleep(time.Hour)
		},
		"it returns ErrDone behind a TryLock": func(w *world) {
			must(w, w.once(w.other, time.Hour, nothing))
			w.p.slow(100*time.Millisecond, 0)
			go w.try(w.c)
			synctest.Wait()
			want(w, w.once(w.c, time.Hour, w.mustNotRun, holdfast.Wait(0)), holdfast.ErrDone)
		},
		"it returns ErrDone if its keep ends after the answer": func(w *world) {
			c := w.client(holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == holdfast.EventWaiting {
					time.Sleep(2 * time.Second) // the answer arrives meanwhile
				}
			}))
			must(w, w.once(w.other, time.Second, nothing))
			w.p.slow(100*time.Millisecond, 0)
			over := w.laterErr(w.Context(), c)
			want(w, w.once(c, time.Second, w.mustNotRun), holdfast.ErrDone)
			must(w, <-over)
		},
		"it does not return ErrDone after its keep is over": func(w *world) {
			must(w, w.once(w.other, time.Second, nothing))
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				if w.p.acquire.calls() == 2 {
					time.Sleep(2 * time.Second)
				}
				return w.s.Acquire(ctx, req)
			})
			over := w.laterErr(w.Context(), w.c)
			time.Sleep(2 * time.Second)
			must(w, w.once(w.c, time.Second, nothing))
			must(w, <-over)
		},
		"Forget lets it run again": func(w *world) {
			want(w, w.other.Forget(w.Context(), "n"), holdfast.ErrNotHeld)
			for range 2 {
				must(w, w.once(w.c, time.Hour, func(context.Context) error {
					err := w.other.Forget(w.Context(), "n")
					want(w, err, holdfast.ErrHeld)
					if !strings.Contains(err.Error(), `forget "n": held by alice`) {
						w.Errorf("the error of Forget: %v", err)
					}
					return nil
				}))
				want(w, w.once(w.other, time.Hour, w.mustNotRun), holdfast.ErrDone)
				must(w, w.other.Forget(w.Context(), "n"))
			}
			want(w, w.other.Forget(w.Context(), "n"), holdfast.ErrNotHeld)
		},
		"Forget lets it run again although a Lock waits": func(w *world) {
			must(w, w.once(w.c, time.Hour, nothing))
			over := w.laterErr(w.Context(), w.c)
			must(w, w.c.Forget(w.Context(), "n"))
			must(w, w.once(w.c, time.Hour, nothing))
			must(w, <-over)
		},
		"Forget lets it run again although an earlier call has not got its reply yet": func(w *world) {
			must(w, w.once(w.c, time.Hour, nothing))
			w.p.slow(0, 10*time.Millisecond)
			go w.once(w.c, time.Hour, w.mustNotRun)
			time.Sleep(time.Millisecond)
			must(w, w.c.Forget(w.Context(), "n"))
			must(w, w.once(w.c, time.Hour, nothing))
		},
	}.run(t)
}
