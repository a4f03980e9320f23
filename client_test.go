package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

func TestClient(t *testing.T) {
	scenarios{
		"two clients never hold one name at the same time": func(w *world) {
			lease := w.lock(w.c, holdfast.Meta("nightly backup"))
			time.Sleep(3 * time.Second)
			for c, left := range map[*holdfast.Client]time.Duration{w.other: 27 * time.Second, w.c: 26 * time.Second} { // the client itself knows the deadline
				err := w.try(c)
				equal(w, "error", err.Error(), fmt.Sprintf(`holdfast: try lock "n": held by alice for 3s, %v left unless renewed (nightly backup)`, left))
				var held *holdfast.HeldError
				errors.As(err, &held)
				if h := held.Holders[0]; h.Owner != "alice" || h.Meta != "nightly backup" || h.Token != lease.Token() || h.ID != lease.ID() || h.Left != left || h.Age != 3*time.Second {
					w.Errorf("holder is %+v", h)
				}
			}
			w.asked(1, 0, 0) // the client that holds it need not ask
			mustUnlock(w, lease)
			w.free("n")
		},
		"permits are granted up to the limit": func(w *world) {
			ctx := w.Context()
			first, err := w.c.Semaphore("gpu", 3).Acquire(ctx, 2)
			must(w, err)
			must(w, errOf(w.other.Semaphore("gpu", 3).TryAcquire(ctx, 1)))
			want(w, errOf(w.other.Semaphore("gpu", 3).TryAcquire(ctx, 1)), holdfast.ErrHeld)
			_, err = w.other.Semaphore("gpu", 4).TryAcquire(ctx, 1)
			invalid(w, "another limit", err, "3")
			invalid(w, "another limit", err, "4")
			mustUnlock(w, first)
			must(w, errOf(w.other.Semaphore("gpu", 3).Acquire(ctx, 2)))
		},
		"Do holds the lock, carries the token and returns the error of the function": func(w *world) {
			for _, result := range []error{errNet, nil} {
				err := w.c.Do(w.Context(), "n", func(ctx context.Context) error {
					if holdfast.TokenFrom(ctx) <= 0 {
						w.Error("no token")
					}
					want(w, w.try(w.other), holdfast.ErrHeld)
					return result
				})
				equal(w, "error of Do", err, result)
				w.free("n")
			}
			boom := func(context.Context) error { panic("boom") }
			equal(w, "panic that reached the caller", panicOf(func() { w.c.Do(w.Context(), "n", boom) }), any("boom"))
			w.free("n")
		},
		"an ended wait reports the holder and the reason": func(w *world) {
			w.lock(w.c)
			stop := errors.New("shutting down")
			ctx, cancel := context.WithCancelCause(w.Context())
			time.AfterFunc(2*time.Second, func() { cancel(stop) })
			want(w, errOf(w.other.Lock(ctx, "n")), holdfast.ErrHeld, stop)
			_, err := w.other.Lock(w.Context(), "n", holdfast.Wait(2*time.Second))
			want(w, err, holdfast.ErrHeld, context.DeadlineExceeded)
			w.took(4 * time.Second)
			equal(w, "error", err.Error(), `holdfast: lock "n": held by alice for 4s, 26s left unless renewed, place 1 in the queue: waited 2s`)
			_, err = w.other.Lock(w.Context(), "n", holdfast.Wait(0))
			want(w, err, holdfast.ErrHeld)
			wantNone(w, err, context.DeadlineExceeded)
			want(w, errOf(w.c.Lock(ctx, "m")), stop) // it has ended
			w.asked(1, 0, 0)
		},
		"prefixes separate namespaces, and different names are independent": func(w *world) {
			shop := newClient(w, w.s, holdfast.WithPrefix("shop:"))
			equal(w, "name", w.lock(shop).Name(), "n")
			w.free("n")
			want(w, errOf(w.c.TryLock(w.Context(), "shop:n")), holdfast.ErrHeld)
			for _, name := range []string{"n", "N", "n ", "n/1", "\u00e9", "e\u0301"} {
				mustLock(w, w.c, name)
			}
		},
		"a loss names the lock and is reported once": func(w *world) {
			const text = `"order:42": lost: its TTL of 30s is over and it was not renewed`
			var seen *holdfast.Lease
			err := w.c.Do(w.Context(), "order:42", func(ctx context.Context) error {
				seen = holdfast.LeaseFrom(ctx)
				<-ctx.Done()
				return fmt.Errorf("step 3: %w", context.Cause(ctx))
			}, holdfast.NoRenew())
			want(w, err, holdfast.ErrLost)
			equal(w, "error", err.Error(), "step 3: holdfast: lease "+text)
			equal(w, "Err", seen.Err().Error(), "holdfast: lease "+text)
			equal(w, "Unlock", seen.Unlock(w.Context()).Error(), `holdfast: unlock "order:42": not held`)
			err = w.c.Do(w.Context(), "order:42", func(ctx context.Context) error {
				<-ctx.Done()
				return errNet
			}, holdfast.NoRenew())
			want(w, err, holdfast.ErrLost, errNet)
			equal(w, "error", err.Error(), "holdfast: do "+text+"; "+errNet.Error())
		},
	}.run(t)
}

// An owner and a meta come from whoever can write to the store, and errors are logged.
func TestErrorsEscapeTextFromTheStore(t *testing.T) {
	err := &holdfast.HeldError{Holders: []holdfast.Holder{{Owner: "web\n\x1b[31m", Meta: "x\r\u202e\u009b"}}}
	if text := err.Error(); strings.ContainsAny(text, "\n\r\x1b\u202e\u009b") || !strings.Contains(text, `web\u000a\u001b[31m`) {
		t.Errorf("%q", text)
	}
}
