package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// lineUp starts n goroutines, which queue for "n" in a known order. The returned function waits until
// all have had the lock, and fails the test if they were not served in that order.
func (w *world) lineUp(n int, hold time.Duration, clients ...*holdfast.Client) (served func()) {
	var order []int // the lock guards it
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			lease, err := clients[i%len(clients)].Lock(context.Background(), "n")
			if err != nil {
				w.Errorf("waiter %d: %v", i, err)
				return
			}
			order = append(order, i)
			time.Sleep(hold)
			if err := lease.Unlock(context.Background()); err != nil {
				w.Errorf("waiter %d: %v", i, err)
			}
		})
		synctest.Wait() // the goroutine waits before the next one starts
	}
	return func() {
		w.Helper()
		wg.Wait()
		if len(order) != n || !slices.IsSorted(order) {
			w.Errorf("served in the order %v", order)
		}
	}
}

func TestQueue(t *testing.T) {
	scenarios{
		"goroutines and clients are served in order of arrival": func(w *world) {
			for _, clients := range [][]*holdfast.Client{{w.c}, {w.c, w.client(), w.client(), w.other}} {
				first := w.lock(w.client())
				served := w.lineUp(4, time.Second, clients...)
				mustUnlock(w, first)
				served()
			}
		},
		"a client has one request per name at the store": func(w *world) {
			lease := w.lock(w.other)
			served := w.lineUp(50, 0, w.c)
			w.asked(1, 0, 0)
			info, _ := w.other.Inspect(w.Context(), "n")
			equal(w, "waiters in the store", len(info.Waiters), 1)
			time.Sleep(time.Minute)
			between(w, "requests of 50 waiting goroutines in a minute", w.p.acquire.calls(), 0, 60)
			before := w.p.acquire.calls()
			mustUnlock(w, lease)
			served()
			// After the wake-up, the client asks again, for the lock and for tokens for the waiters
			// behind it.
			w.asked(before+1, 0, 1)
		},
		"a wait longer than the TTL does not shorten the lease": func(w *world) {
			for _, c := range []*holdfast.Client{w.c, w.client(holdfast.WithHandover(0, 0))} {
				first := w.lock(c)
				got := w.later(c)
				time.Sleep(10 * time.Minute)
				mustUnlock(w, first)
				lease := <-got
				equal(w, "rest", time.Until(lease.Deadline()), 29*time.Second)
				time.Sleep(10 * time.Minute)
				mustUnlock(w, lease)
			}
		},
		"a waiter with a different request goes to the store": func(w *world) {
			for i, opt := range []holdfast.CallOption{
				holdfast.TTL(time.Minute), holdfast.Meta("other"), holdfast.NoRenew(), holdfast.MaxHold(time.Minute),
			} {
				first := w.lock(w.c)
				got := w.later(w.c, opt)
				mustUnlock(w, first)
				mustUnlock(w, <-got)
				w.asked(int64(2*i+2), 0, int64(2*i+2))
			}
		},
		"a lost grant sends local waiters to the store": func(w *world) {
			lease := w.lock(w.c)
			served := w.lineUp(3, 0, w.c)
			done := lease.Done()
			w.p.renew.set(failRenew)
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				if !isDone(done) {
					w.Error("a waiter asks before the holder knows of its loss")
				}
				return w.s.Acquire(ctx, req)
			})
			<-done
			w.p.renew.reset()
			served()
			w.took(30 * time.Second) // with the margin, during which the store still has the grant
			want(w, lease.Unlock(w.Context()), holdfast.ErrLost)
			w.free("n")
		},
		"concurrent TryLocks share one request": func(w *world) {
			w.p.slow(10*time.Millisecond, 0)
			w.lock(w.other)
			together(50, func(int) { want(w, w.try(w.c), holdfast.ErrHeld) })
			w.took(10 * time.Millisecond)
			w.asked(1, 0, 0)
		},
		"a TryLock shares the reply to a request in flight, and does not overtake it": func(w *world) {
			w.p.slow(10*time.Millisecond, 0)
			lease := w.lock(w.other)
			got := w.later(w.c)
			for range 2 { // during the round trip, and after it
				want(w, w.try(w.c), holdfast.ErrHeld)
				w.took(10 * time.Millisecond)
			}
			time.Sleep(time.Second)
			var held *holdfast.HeldError
			if err := w.try(w.c); !errors.As(err, &held) || held.Holders[0].Owner != "bob" || held.Holders[0].Left != 28990*time.Millisecond {
				w.Errorf("TryLock: %v", err)
			}
			mustUnlock(w, lease)
			mustUnlock(w, <-got)
		},
		"a TryLock after an Unlock does not share a reply from before it": func(w *world) {
			lease := w.read(w.c)
			w.p.slow(0, 10*time.Millisecond)
			go w.try(w.c) // is refused because of the lease
			time.Sleep(time.Millisecond)
			mustUnlock(w, lease)
			must(w, w.try(w.c))
		},
		"a TryLock behind a call in the store's queue is refused at once, although a reader leaves": func(w *world) {
			reader := w.read(w.c)
			another := w.read(w.c)
			got := w.later(w.c)
			mustUnlock(w, reader)
			err := w.try(w.c)
			want(w, err, holdfast.ErrHeld)
			wantNoHolder(w, err, reader)
			w.took(0)
			must(w, w.c.Break(w.Context(), "n", another.ID()))
			mustUnlock(w, <-got)
		},
		"a TryLock behind a call in the store's queue is not told of a lease that Break has ended": func(w *world) {
			reader, err := w.other.RLock(w.Context(), "n")
			must(w, err)
			_, err = w.other.RLock(w.Context(), "n")
			must(w, err)
			ctx, cancel := context.WithCancel(w.Context())
			got := w.laterErr(ctx, w.c)
			must(w, w.c.Break(w.Context(), "n", reader.ID()))
			err = w.try(w.c)
			want(w, err, holdfast.ErrHeld)
			wantNoHolder(w, err, reader)
			w.took(0)
			cancel()
			want(w, <-got, context.Canceled)
		},
		"a TryAcquire after an Unlock that leaves room is not refused because another call is queued": func(w *world) {
			permits := w.c.Semaphore("n", 8)
			all, err := permits.Acquire(w.Context(), 8)
			must(w, err)
			got := make(chan error, 1)
			go func() { got <- errOf(permits.Acquire(w.Context(), 2)) }()
			synctest.Wait()
			mustUnlock(w, all)
			must(w, errOf(permits.TryAcquire(w.Context(), 1)))
			must(w, <-got)
		},
		"a TryRLock after a Downgrade does not share a reply from before it": func(w *world) {
			lease := w.lock(w.c)
			w.p.slow(0, 10*time.Millisecond)
			w.p.renew.set(func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				go w.c.TryRLock(w.Context(), "n") // is refused because of the exclusive lease
				synctest.Wait()
				return w.s.Renew(ctx, grants)
			})
			must(w, lease.Downgrade(w.Context()))
			must(w, errOf(w.c.TryRLock(w.Context(), "n")))
		},
		"local readers share and do not overtake a writer": func(w *world) {
			var mu sync.Mutex
			var events []string
			var wg sync.WaitGroup
			for _, who := range []string{"r1", "r2", "w", "r3", "r4"} {
				lock := w.c.RLock
				if who == "w" {
					lock = w.c.Lock
				}
				wg.Go(func() {
					lease, err := lock(context.Background(), "n")
					must(w, err)
					mu.Lock()
					events = append(events, who)
					mu.Unlock()
					time.Sleep(time.Second)
					mustUnlock(w, lease)
				})
				synctest.Wait()
			}
			wg.Wait()
			slices.Sort(events[3:]) // these two are served together
			equal(w, "served", fmt.Sprint(events), "[r1 r2 w r3 r4]")
			w.took(3 * time.Second)
		},
		"the next local waiter inherits the place of cancelled ones": func(w *world) {
			lease := w.lock(w.other)
			ctx, cancel := context.WithCancel(w.Context())
			over := w.laterErr(ctx, w.c)                                                 // is first in the queue
			behind := w.laterErr(w.Context(), w.c, holdfast.Wait(1500*time.Millisecond)) // no multiple of when over looks at the queue
			local, remote := w.later(w.c), w.later(w.client())
			want(w, <-behind, context.DeadlineExceeded, holdfast.ErrHeld)
			cancel()
			want(w, <-over, context.Canceled)
			synctest.Wait()
			info, _ := w.other.Inspect(w.Context(), "n")
			equal(w, "waiters in the store", len(info.Waiters), 2)
			mustUnlock(w, lease)
			synctest.Wait()
			equal(w, "grants of a call that came later", len(remote), 0)
			mustUnlock(w, <-local)
			mustUnlock(w, <-remote)
		},
		"the next local waiter inherits the place also after a failed wait": func(w *world) {
			lease := w.lock(w.other)
			ctx, cancel := context.WithCancel(w.Context())
			w.p.wait.set(func(context.Context, string, store.ID) error { return errNet })
			first := w.laterErr(ctx, w.c)
			w.p.wait.reset()
			local, remote := w.later(w.c), w.later(w.client())
			time.Sleep(time.Minute)
			cancel()
			want(w, <-first, context.Canceled)
			synctest.Wait()
			mustUnlock(w, lease)
			synctest.Wait()
			equal(w, "grants of a call that came later", len(remote), 0)
			for range 2 {
				select {
				case lease := <-local:
					mustUnlock(w, lease)
				case lease := <-remote:
					mustUnlock(w, lease)
				}
			}
		},
		// In rueidislock, a local waiter that was cancelled when its turn came swallowed the wake-up.
		"the next call gets the turn of a waiter that is cancelled at that moment": func(w *world) {
			for _, limit := range []int{0, holdfast.DefaultHandoverLimit} {
				c := w.client(holdfast.WithHandover(limit, holdfast.DefaultHandoverSlice))
				for range 30 { // the waiter sees either of both
					holder := w.lock(c)
					ctx, cancel := context.WithCancel(w.Context())
					lease, err := c.Lock(doneCtx{ctx, sync.OnceFunc(func() { mustUnlock(w, holder); cancel() })}, "n")
					if err == nil {
						mustUnlock(w, lease)
					}
					mustUnlock(w, w.lock(c))
				}
			}
		},
		"a busy client does not starve others when the store has no queue": func(w *world) {
			busy, other := newClient(w, withoutQueue(w.s)), newClient(w, withoutQueue(w.s))
			stop := w.keepBusy(busy, 3)
			time.Sleep(7 * time.Millisecond)
			lease, err := other.Lock(w.Context(), "n", holdfast.Wait(time.Minute))
			must(w, err)
			mustUnlock(w, lease)
			stop()
		},
		"a long retry interval does not delay other calls": func(w *world) {
			c := newClient(w, withoutQueue(w.s))
			lease := w.lock(w.other)
			w.laterErr(w.Context(), c, holdfast.Retry(holdfast.Every(time.Hour)))
			time.AfterFunc(time.Second, func() { lease.Unlock(context.Background()) })
			mustUnlock(w, w.lock(c))
			w.within(time.Second, 5*time.Second)
		},
		"a long retry interval after a failure does not delay other calls": func(w *world) {
			w.p.acquire.set(failAcquire)
			w.laterErr(w.Context(), w.c, holdfast.Retry(holdfast.Every(time.Hour)))
			w.p.acquire.reset()
			time.Sleep(time.Minute)
			mustUnlock(w, w.lock(w.c))
			w.within(time.Minute, time.Minute+time.Second)
		},
		"a long slice does not delay local waiters when the store has no queue": func(w *world) {
			c := newClient(w, withoutQueue(w.s), holdfast.WithHandover(1, time.Hour))
			lease := w.lock(c)
			got := w.later(c, holdfast.Meta("other"))
			mustUnlock(w, lease)
			mustUnlock(w, <-got)
			w.within(0, time.Second)
		},
		"a TryLock does not return an old refusal when the store has no queue": func(w *world) {
			c := newClient(w, withoutQueue(w.s))
			blocker := w.lock(w.other)
			go c.RLock(w.Context(), "n", holdfast.Wait(50*time.Second), holdfast.Retry(holdfast.Every(time.Minute)))
			time.Sleep(time.Second)
			mustUnlock(w, blocker)
			time.Sleep(30 * time.Second)
			must(w, errOf(c.TryRLock(w.Context(), "n")))
			time.Sleep(time.Minute)
		},
		// The first call waits in the store, which wakes nobody while it hangs.
		"a call behind a waiting call learns in time that the store hangs": func(w *world) {
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				answer, err := w.s.Acquire(ctx, req)
				if answer.Refusal != nil {
					answer.Refusal.Again = 10 * time.Second
				}
				return answer, err
			})
			w.lock(w.other)
			w.laterErr(context.Background(), w.c)
			w.p.hang()
			w.p.leave.reset()
			want(w, errOf(w.c.Lock(context.Background(), "n")), holdfast.ErrUnavailable)
			w.within(5*time.Second, 6*time.Second)
		},
	}.run(t)
}

// A doneCtx calls f before it returns its channel to a waiter.
type doneCtx struct {
	context.Context
	f func()
}

func (c doneCtx) Done() <-chan struct{} {
	c.f()
	return c.Context.Done()
}

// keepBusy takes and releases "n" on some goroutines until stop is called.
func (w *world) keepBusy(c *holdfast.Client, goroutines int) (stop func()) {
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for !isDone(stopped) {
				lease := w.lock(c)
				time.Sleep(time.Millisecond)
				mustUnlock(w, lease)
			}
		})
	}
	return func() {
		close(stopped)
		wg.Wait()
	}
}

// wantNoHolder fails the test if the error of a refused call names that lease.
func wantNoHolder(t testing.TB, err error, l *holdfast.Lease) {
	t.Helper()
	var held *holdfast.HeldError
	if !errors.As(err, &held) || slices.ContainsFunc(held.Holders, func(h holdfast.Holder) bool { return h.ID == l.ID() }) {
		t.Errorf("%v names a lease that this client has ended", err)
	}
}
