package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func init() {
	store.Register("unreachable", func(context.Context, *store.URL) (store.Store, error) { return nil, errNet })
	store.Register("hung", func(ctx context.Context, _ *store.URL) (store.Store, error) { return nil, hang(ctx) })
}

func TestHungStore(t *testing.T) {
	all := scenarios{
		"Lock retries it": func(w *world) {
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				if w.p.acquire.calls() == 1 {
					return store.Answer{}, hang(ctx)
				}
				return w.s.Acquire(ctx, req)
			})
			w.lock(w.c)
			w.within(3*time.Second, 4*time.Second)
		},
		"a call without a reply does not hide why earlier ones failed": func(w *world) {
			for i, failure := range []error{errNet, fmt.Errorf("%s: %w", errNet, context.DeadlineExceeded)} { // the latter is a limit of the store
				before := w.p.acquire.calls()
				w.p.acquire.set(func(ctx context.Context, _ store.Request) (store.Answer, error) {
					if w.p.acquire.calls() <= before+2 {
						return store.Answer{}, failure
					}
					return store.Answer{}, hang(ctx)
				})
				_, err := w.c.Lock(w.Context(), fmt.Sprint(i))
				want(w, err, holdfast.ErrUnavailable)
				if text := err.Error(); !strings.Contains(text, "no reply in time") || strings.Count(text, errNet.Error()) != 1 {
					w.Errorf("%v, want both reasons", err)
				}
			}
		},
		"its time limit does not match the caller's deadline error": func(w *world) {
			w.p.caps = func(caps *store.Capabilities) { caps.Timeout = time.Second }
			c := w.client()
			lease := w.lock(c)
			w.p.fail(fmt.Errorf("read tcp: %w", context.DeadlineExceeded))
			_, lockErr := c.Lock(w.Context(), "other")
			for call, err := range map[string]error{"lock": lockErr, "renew": lease.Renew(w.Context()), "unlock": lease.Unlock(w.Context())} {
				want(w, err, holdfast.ErrUnavailable)
				wantNone(w, err, context.DeadlineExceeded)
				if !strings.Contains(err.Error(), "read tcp") {
					w.Errorf("%s: the error hides its cause: %v", call, err)
				}
			}
		},
		"Unlock is bounded when another goroutine waits": func(w *world) {
			lease := w.lock(w.c)
			w.laterErr(w.Context(), w.c, holdfast.Wait(time.Minute))
			time.Sleep(time.Second)
			w.p.hang()
			want(w, lease.Unlock(w.Context()), holdfast.ErrUnavailable)
			w.within(3*time.Second, 6*time.Second)
		},
		"TryLock is bounded while the name is being released": func(w *world) {
			lease := w.lock(w.c)
			w.p.hang()
			go lease.Unlock(w.Context())
			synctest.Wait()
			err := w.try(w.c)
			want(w, err, holdfast.ErrUnavailable)
			wantNone(w, err, context.DeadlineExceeded)
			w.within(time.Second, 3*time.Second)
		},
		"many calls for one name do not wait for each other": func(w *world) {
			w.p.hang()
			together(10, func(int) {
				want(w, errOf(w.c.Lock(w.Context(), "n")), holdfast.ErrUnavailable)
				w.within(4*time.Second, 7*time.Second)
			})
		},
		"a Lock behind a call with another strategy gives up as soon as alone": func(w *world) {
			w.p.hang()
			ctx, cancel := context.WithCancel(w.Context())
			defer cancel()
			w.laterErr(ctx, w.c, holdfast.Retry(holdfast.Every(time.Second)))
			var wg sync.WaitGroup
			for range 30 {
				time.Sleep(400 * time.Millisecond)
				begin := time.Now()
				wg.Go(func() {
					want(w, errOf(w.c.Lock(context.Background(), "n", holdfast.Wait(time.Minute))), holdfast.ErrUnavailable)
					equal(w, "after", time.Since(begin), 5*time.Second)
				})
			}
			wg.Wait()
		},
		"a Lock behind a call that gives up or is cancelled does not begin anew": func(w *world) {
			for _, end := range []time.Duration{time.Hour, 4 * time.Second} {
				ctx, cancel := context.WithTimeout(w.Context(), end)
				defer cancel()
				w.p.hang()
				w.laterErr(ctx, w.c)
				time.Sleep(500 * time.Millisecond)
				begin := time.Now()
				want(w, errOf(w.c.Lock(w.Context(), "n")), holdfast.ErrUnavailable)
				between(w, "time of the call", time.Since(begin), 0, 5*time.Second)
				w.p.heal()
				time.Sleep(time.Minute)
			}
		},
		"a Lock behind an Unlock gives up with it": func(w *world) {
			lease := w.lock(w.c)
			got := w.laterErr(w.Context(), w.c)
			w.p.hang()
			want(w, lease.Unlock(w.Context()), holdfast.ErrUnavailable)
			want(w, <-got, holdfast.ErrUnavailable)
			w.within(3*time.Second, 6*time.Second)
		},
		"a call that waits behind another learns why there is no reply": func(w *world) {
			w.p.hang()
			ctx, cancel := context.WithCancel(w.Context())
			defer cancel()
			every := holdfast.Retry(holdfast.Every(time.Second))
			w.laterErr(ctx, w.c, every)
			_, err := w.c.Lock(w.Context(), "n", every, holdfast.Wait(10*time.Second))
			want(w, err, holdfast.ErrUnavailable, context.DeadlineExceeded)
			w.took(10 * time.Second)
		},
		"Open is bounded": func(w *world) {
			want(w, errOf(holdfast.Open(w.Context(), "unreachable:")), holdfast.ErrUnavailable, errNet)
			w.took(0)
			_, err := holdfast.Open(context.Background(), "hung:")
			w.took(10 * time.Second)
			want(w, err, holdfast.ErrUnavailable)
			wantNone(w, err, context.DeadlineExceeded)
			impatient := errors.New("impatient")
			ctx, cancel := context.WithTimeoutCause(w.Context(), time.Second, impatient)
			defer cancel()
			want(w, errOf(holdfast.Open(ctx, "hung:")), holdfast.ErrUnavailable, impatient)
		},
	}
	for name, test := range map[string]struct {
		most time.Duration
		call func(*holdfast.Client, *holdfast.Lease) error
	}{
		"lock": {5 * time.Second, func(c *holdfast.Client, _ *holdfast.Lease) error { return c.Do(context.Background(), "m", nothing) }},
		"try lock": {3 * time.Second, func(c *holdfast.Client, _ *holdfast.Lease) error {
			return errOf(c.TryLock(context.Background(), "m"))
		}},
		"renew":  {3 * time.Second, func(_ *holdfast.Client, l *holdfast.Lease) error { return l.Renew(context.Background()) }},
		"unlock": {5 * time.Second, func(_ *holdfast.Client, l *holdfast.Lease) error { return l.Unlock(context.Background()) }},
	} {
		all["a call is bounded: "+name] = func(w *world) {
			lease := w.lock(w.c)
			w.p.hang()
			err := test.call(w.c, lease)
			w.within(test.most/2, test.most)
			want(w, err, holdfast.ErrUnavailable)
			wantNone(w, err, context.DeadlineExceeded, context.Canceled)
		}
	}
	all.run(t)
}
