package holdfast_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestAcquire(t *testing.T) {
	scenarios{
		// A request may time out after the store has granted it.
		"a retry recognises its own grant": func(w *world) {
			ids := map[store.ID]bool{}
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				ids[req.ID] = true
				answer, err := w.s.Acquire(ctx, req)
				if w.p.acquire.calls() < 3 {
					return store.Answer{}, errNet // granted, but the reply is lost
				}
				return answer, err
			})
			lease := w.lock(w.c)
			w.within(0, time.Second) // far less than a TTL
			equal(w, "identities", len(ids), 1)
			mustUnlock(w, lease)
			w.free("n")
		},
		// redsync and redislock cleaned up with the context that had ended, which left the lock held
		// until its TTL was over.
		"a lost reply is undone": func(w *world) {
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				w.s.Acquire(ctx, req)
				return store.Answer{}, hang(ctx)
			})
			for _, lock := range []func(context.Context, string, ...holdfast.CallOption) (*holdfast.Lease, error){w.c.Lock, w.c.TryLock, w.c.RLock} {
				ctx, cancel := context.WithTimeout(w.Context(), time.Second)
				_, err := lock(ctx, "n")
				cancel()
				want(w, err, context.DeadlineExceeded)
				synctest.Wait()
				w.free("n")
			}
		},
		"the clean-up is retried": func(w *world) {
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				w.s.Acquire(ctx, req)
				return store.Answer{}, errNet
			})
			w.p.leave.set(func(ctx context.Context, name string, id store.ID) error {
				if w.p.leave.calls() < 4 {
					return errNet
				}
				return w.s.Leave(ctx, name, id)
			})
			err := w.try(w.c)
			want(w, err, holdfast.ErrUnavailable, errNet)
			wantNone(w, err, holdfast.ErrHeld)
			w.asked(1, 0, 0) // TryLock makes one attempt
			time.Sleep(time.Second)
			w.free("n")
		},
		// rueidislock blocks silently until the context ends.
		"an unreachable store is reported soon": func(w *world) {
			w.p.fail(errNet)
			c, seen := w.observed()
			_, err := c.Lock(context.Background(), "n")
			want(w, err, holdfast.ErrUnavailable, errNet)
			w.within(time.Second, 4*time.Second)
			if seen.count(holdfast.EventError) != 7 || !strings.Contains(err.Error(), "7 attempts") {
				w.Errorf("%d errors were observed, and the error reads %q", seen.count(holdfast.EventError), err)
			}
			_, err = c.Lock(w.Context(), "n", holdfast.Wait(300*time.Millisecond))
			want(w, err, context.DeadlineExceeded, holdfast.ErrUnavailable, errNet)
		},
		"a waiter survives an outage": func(w *world) {
			lease := w.lock(w.other)
			got := w.later(w.c)
			w.p.fail(errNet)
			w.p.wait.set(func(context.Context, string, store.ID) error { return errNet })
			mustUnlock(w, lease)
			time.Sleep(time.Second)
			w.p.heal()
			mustUnlock(w, <-got)
		},
		"a lost wake-up is made up for by polling": func(w *world) {
			w.p.wait.set(func(ctx context.Context, _ string, _ store.ID) error { return hang(ctx) })
			lease := w.lock(w.other)
			got := w.later(w.c)
			mustUnlock(w, lease)
			mustUnlock(w, <-got)
			w.within(0, w.s.Capabilities().Heartbeat)
		},
		"a store without a queue is polled with backoff": func(w *world) {
			p := withoutQueue(w.s)
			p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				if req.Queue {
					w.Error("asked to queue")
				}
				return w.s.Acquire(ctx, req)
			})
			lease := w.lock(w.other)
			got := w.later(newClient(w, p))
			time.Sleep(10 * time.Second)
			between(w, "requests in 10 s", p.acquire.calls(), 20, 60)
			w.mark()
			mustUnlock(w, lease)
			mustUnlock(w, <-got)
			w.within(0, 500*time.Millisecond)
			equal(w, "calls of Wait", p.wait.calls(), 0)
		},
		"retries keep the place in the queue": func(w *world) {
			lease := w.lock(w.other)
			patient := w.later(w.c, holdfast.Retry(holdfast.Every(time.Hour)))
			next := w.later(w.client())
			time.Sleep(10 * time.Minute) // far longer than a heartbeat
			w.mark()
			mustUnlock(w, lease)
			mustUnlock(w, <-patient) // it is first
			mustUnlock(w, <-next)
			w.took(0) // woken, not polling
		},
		// After a cancelled wait, the store may still have the waiter of this client.
		"a TryLock is not refused because of an earlier cancelled wait": func(w *world) {
			w.p.leave.set(func(ctx context.Context, name string, id store.ID) error {
				time.Sleep(100 * time.Millisecond)
				return w.s.Leave(ctx, name, id)
			})
			blocker := w.lock(w.other)
			_, err := w.c.Lock(w.Context(), "n", holdfast.Wait(time.Second))
			want(w, err, holdfast.ErrHeld, context.DeadlineExceeded)
			mustUnlock(w, blocker)
			must(w, w.try(w.c))
		},
		"a hung clean-up delays the next call only briefly": func(w *world) {
			w.p.leave.set(func(ctx context.Context, _ string, _ store.ID) error { return hang(ctx) })
			w.lock(w.other)
			want(w, errOf(w.c.Lock(w.Context(), "n", holdfast.Wait(time.Second))), holdfast.ErrHeld)
			want(w, w.try(w.c), holdfast.ErrHeld)
			w.took(2 * time.Second)
		},
		// The store may grant a queued request at any time, with the TTL and meta of the request. A
		// call that takes over its identity must have the same TTL and meta.
		"requests under one identity are identical": func(w *world) {
			type asked struct {
				ttl  time.Duration
				meta string
			}
			requests := map[store.ID]asked{}
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				now := asked{req.TTL, req.Meta}
				if before, ok := requests[req.ID]; ok {
					equal(w, "asked again under one identity", now, before)
				}
				requests[req.ID] = now
				return w.s.Acquire(ctx, req)
			})
			blocker := w.lock(w.other)
			var over []<-chan error
			for _, opts := range [][]holdfast.CallOption{
				{holdfast.TTL(time.Second), holdfast.Wait(time.Second)}, // gives up
				{holdfast.TTL(8 * time.Second), holdfast.Wait(2 * time.Second)},
				{holdfast.TTL(8 * time.Second), holdfast.Meta("x"), holdfast.Wait(3 * time.Second)},
				{holdfast.TTL(8 * time.Second), holdfast.Meta("x")}, // takes over the place
			} {
				over = append(over, w.laterErr(w.Context(), w.c, opts...))
			}
			time.Sleep(4 * time.Second)
			mustUnlock(w, blocker)
			for _, over := range over[:3] {
				want(w, <-over, holdfast.ErrHeld)
			}
			must(w, <-over[3])
			equal(w, "identities", len(requests), 3)
		},
		"concurrent TryLocks do not add up their timeouts": func(w *world) {
			w.p.hang()
			together(20, func(int) { w.try(w.c) })
			w.within(0, 6*time.Second)
		},
		"a TryLock fails soon while another call retries": func(w *world) {
			w.p.fail(errNet)
			go w.c.Campaign(context.Background(), "n", nothing)
			synctest.Wait()
			want(w, w.try(w.c), holdfast.ErrUnavailable)
			w.within(0, 10*time.Second)
		},
	}.run(t)
}

func TestStrategies(t *testing.T) {
	scenarios{
		"a strategy sees attempts and errors": func(w *world) {
			w.lock(w.other)
			var held, failed int
			strategy := holdfast.Retry(holdfast.StrategyFunc(func(attempt int, err error) (time.Duration, bool) {
				var he *holdfast.HeldError
				switch {
				case errors.As(err, &he) && len(he.Holders) == 1:
					held = attempt
				case errors.Is(err, holdfast.ErrUnavailable):
					failed = attempt
				}
				return time.Second, attempt < 3
			}))
			want(w, errOf(w.c.Lock(w.Context(), "n", strategy)), holdfast.ErrHeld)
			w.took(2 * time.Second)
			if held != 3 || failed != 0 {
				w.Errorf("attempts seen: held %v, failed %v", held, failed)
			}
			synctest.Wait()
			info, _ := w.other.Inspect(w.Context(), "n")
			equal(w, "waiters left in the queue", len(info.Waiters), 0)
			w.p.fail(errNet)
			w.mark()
			want(w, errOf(w.c.Lock(w.Context(), "n", strategy)), holdfast.ErrUnavailable)
			w.took(2 * time.Second)
			equal(w, "failures seen", failed, 3)
		},
		"refusals and failures count together": func(w *world) {
			w.p.wait.set(func(context.Context, string, store.ID) error { return errNet })
			w.lock(w.other)
			w.c.Lock(w.Context(), "n", holdfast.Wait(time.Hour), holdfast.Retry(holdfast.MaxAttempts(3, holdfast.Every(time.Second))))
			between(w, "requests with MaxAttempts(3)", w.p.acquire.calls(), 0, 3)
		},
		"a strategy that panics blocks nothing, and is observed": func(w *world) {
			c, seen := w.observed()
			panics := holdfast.Retry(holdfast.StrategyFunc(func(int, error) (time.Duration, bool) { panic("no") }))
			w.p.acquire.set(failAcquire)
			equal(w, "panic of Lock", panicOf(func() { c.Lock(w.Context(), "n", panics) }), any("no"))
			if e := seen.last(holdfast.EventGaveUp); e.Err == nil {
				w.Errorf("%+v", e)
			}
			w.p.heal()
			must(w, errOf(c.Lock(w.Context(), "n", holdfast.Wait(time.Hour))))
			mustLock(w, w.other, "z")
			equal(w, "panic of LockAll", panicOf(func() { c.LockAll(w.Context(), []string{"a", "z"}, panics) }), any("no"))
			w.free("a")
		},
		"the longest wait of a strategy does not use up its attempts": func(w *world) {
			forever := holdfast.StrategyFunc(func(int, error) (time.Duration, bool) { return math.MaxInt64, true })
			retry := holdfast.Retry(holdfast.MaxAttempts(3, forever))
			lease := w.lock(w.other)
			got := w.later(w.c, retry)
			time.Sleep(10 * time.Minute) // far longer than three heartbeats
			mustUnlock(w, lease)
			mustUnlock(w, <-got)
			w.p.fail(errNet)
			go func() {
				time.Sleep(time.Second)
				w.c.Lock(w.Context(), "n", holdfast.Wait(time.Hour)) // makes the other call ask early
			}()
			w.mark()
			_, err := w.c.Lock(w.Context(), "n", retry, holdfast.Wait(time.Minute))
			want(w, err, context.DeadlineExceeded)
			w.took(time.Minute)
		},
		"a strategy chooses the wait after a failure, whatever it chose after a refusal": func(w *world) {
			failed := 0
			retry := holdfast.Retry(holdfast.StrategyFunc(func(attempt int, err error) (time.Duration, bool) {
				if errors.Is(err, holdfast.ErrHeld) {
					return time.Hour, attempt < 2 // the store wakes the call earlier
				}
				failed++
				return time.Second, true
			}))
			lease := w.lock(w.other)
			broken := make(chan struct{})
			w.p.wait.set(func(context.Context, string, store.ID) error { <-broken; return errNet })
			got := w.later(w.c, retry)
			w.p.heal()
			close(broken)
			synctest.Wait()
			w.mark()
			mustUnlock(w, lease)
			mustUnlock(w, <-got)
			w.took(time.Second)
			equal(w, "failures seen", failed, 1)
		},
		"a failure does not shorten the wait that a strategy chose after a refusal": func(w *world) {
			retry := holdfast.Retry(holdfast.StrategyFunc(func(attempt int, err error) (time.Duration, bool) {
				if errors.Is(err, holdfast.ErrHeld) {
					return time.Hour, attempt < 2
				}
				return time.Second, true
			}))
			lease := w.lock(w.other)
			w.p.wait.set(func(context.Context, string, store.ID) error { return errNet })
			ended := w.laterErr(w.Context(), w.c, retry)
			w.p.heal()
			time.Sleep(10 * time.Minute)
			mustUnlock(w, lease)
			must(w, <-ended)
		},
		"a strategy keeps its pace in an outage while others wait": func(w *world) {
			w.p.fail(errNet)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := w.c.Lock(w.Context(), "n", holdfast.Retry(holdfast.MaxAttempts(4, holdfast.Every(10*time.Second))))
				want(w, err, holdfast.ErrUnavailable)
				w.within(30*time.Second, 31*time.Second)
			})
			synctest.Wait()
			wg.Go(func() { w.c.Lock(w.Context(), "n", holdfast.Wait(time.Hour)) })
			wg.Wait()
		},
	}.run(t)
	backoff := holdfast.Backoff(100*time.Millisecond, time.Second)
	for attempt, full := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond,
		5: time.Second, 63: time.Second, 64: time.Second, 1 << 30: time.Second,
	} {
		different := map[time.Duration]bool{}
		for range 100 {
			wait, again := backoff.Next(attempt, errNet)
			if wait < full/2 || wait > full || !again {
				t.Fatalf("attempt %d: %v, want %v to %v", attempt, wait, full/2, full)
			}
			different[wait] = true
		}
		if len(different) < 2 {
			t.Errorf("attempt %d: no jitter", attempt)
		}
	}
	three := holdfast.MaxAttempts(3, holdfast.Every(time.Second))
	for attempt, more := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		if wait, again := three.Next(attempt, errNet); again != more || again && wait != time.Second {
			t.Errorf("attempt %d: %v, %t", attempt, wait, again)
		}
	}
}

func TestSpuriousWakeUpsDoNotMakeTheClientSpin(t *testing.T) {
	s := memstore.New()
	p := newProxy(s)
	p.wait.set(func(context.Context, string, store.ID) error { return nil }) // the contract allows it to return early
	mustLock(t, newClient(t, s), "n")
	newClient(t, p).Lock(t.Context(), "n", holdfast.Wait(200*time.Millisecond))
	between(t, "requests in 200 ms", p.acquire.calls(), 0, 250)
}
