package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestRenewal(t *testing.T) {
	scenarios{
		"a lease is renewed while it is held": func(w *world) {
			lease := w.lock(w.c)
			for range 100 {
				time.Sleep(30 * time.Second)
				want(w, w.try(w.other), holdfast.ErrHeld)
			}
			must(w, lease.Err())
			between(w, "renewals in 50 minutes, one every 10 s", w.p.renew.calls(), 295, 310)
			time.Sleep(time.Second) // so that the unlock does not coincide with a renewal
			mustUnlock(w, lease)
			before := w.p.renew.calls()
			time.Sleep(time.Hour)
			equal(w, "renewals after the unlock", w.p.renew.calls()-before, 0)
		},
		"renewals are batched": func(w *world) {
			const n = 1000
			for i := range n {
				mustLock(w, w.c, fmt.Sprint(i))
				time.Sleep(time.Millisecond)
			}
			time.Sleep(30 * time.Second)
			// There are three rounds of four calls, and a few more because the leases do not start
			// together.
			between(w, "calls to renew for 30 s", w.p.renew.calls(), 12, 24)
			page, err := w.s.List(w.Context(), store.Query{Limit: n})
			must(w, err)
			equal(w, "locks that are held", len(page.Locks), n)
		},
		"no TTL is longer than the longest of the store": func(w *world) {
			const most = 10 * time.Second
			w.p.caps = func(caps *store.Capabilities) { caps.MaxTTL = most }
			c := w.client()
			invalid(w, "a longer TTL", errOf(c.Lock(w.Context(), "n", holdfast.TTL(most+1))), "TTL 10.000000001s")
			w.asked(0, 0, 0)
			between(w, "the default TTL", time.Until(w.lock(c).Deadline()), 0, most)
		},
		"a lost reply is not a lost lock": func(w *world) { // dynamolock treated it as one
			w.p.renew.set(func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				out, err := w.s.Renew(ctx, grants)
				if w.p.renew.calls()%4 != 0 { // three of four replies are lost
					return nil, errNet
				}
				return out, err
			})
			c, seen := w.observed()
			lease := w.lock(c)
			time.Sleep(10 * time.Minute)
			mustUnlock(w, lease)
			want(w, seen.last(holdfast.EventError).Err, holdfast.ErrUnavailable, errNet)
		},
		"a renewal that timed out is repeated at once, and one that failed soon": func(w *world) {
			var at []time.Duration
			w.p.renew.set(func(ctx context.Context, _ []store.Renewal) ([]store.Renewed, error) {
				at = append(at, time.Since(w.start).Round(time.Millisecond))
				if len(at) <= 2 {
					return nil, hang(ctx)
				}
				return nil, errNet
			})
			<-w.lock(w.c, holdfast.TTL(12*time.Second)).Done()
			const ms = time.Millisecond
			// The first attempt is after a third of the TTL. Two attempts time out after a sixth of
			// the TTL. Then there is an attempt every twentieth of the TTL until the deadline.
			wanted := []time.Duration{4000 * ms, 6000 * ms, 8000 * ms, 8600 * ms, 9200 * ms, 9800 * ms, 10400 * ms, 11000 * ms}
			if !slices.Equal(at, wanted) {
				w.Errorf("renewals were sent at\n%v, want\n%v", at, wanted)
			}
		},
		// If the timer fired repeatedly, fake time would not advance and the test would hang.
		"a hung renewal does not make the timer spin": func(w *world) {
			stuck := make(chan struct{})
			w.p.renew.set(func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
				if w.p.renew.calls() == 1 {
					<-stuck // returns later than its context allows
				}
				return w.s.Renew(ctx, g)
			})
			lease := w.lock(w.c)
			time.Sleep(12 * time.Second) // the renewal at 10 s is stuck
			must(w, lease.Renew(w.Context()))
			time.Sleep(20 * time.Second) // the next renewal would be due at 22 s
			close(stuck)
			time.Sleep(time.Minute)
			mustUnlock(w, lease)
		},
		"a lease without renewal ends after its TTL": func(w *world) {
			lease := w.lock(w.c, holdfast.NoRenew(), holdfast.TTL(10*time.Second))
			time.Sleep(8 * time.Second)
			must(w, lease.Renew(w.Context())) // by hand
			<-lease.Done()
			w.took(17500 * time.Millisecond)
			want(w, lease.Err(), holdfast.ErrLost)
			want(w, lease.Renew(w.Context()), holdfast.ErrLost)
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				req.TTL /= 3 // although the grant is short
				return w.s.Acquire(ctx, req)
			})
			<-mustLock(w, w.c, "m", holdfast.NoRenew()).Done()
			equal(w, "renewals", w.p.renew.calls(), 1)
		},
		// The store pushes a short grant to a waiter. It may expire before the waiter asks for all of its TTL.
		"a lease without renewal has its whole TTL although a pushed grant expired": func(w *world) {
			w.p.wait.set(func(context.Context, string, store.ID) error { return nil })
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				switch w.p.acquire.calls() {
				case 2:
					return store.Answer{Refusal: &store.Refusal{Again: time.Second}}, nil
				case 4:
					return store.Answer{}, errNet
				case 1, 3, 5:
					req.TTL = time.Second
				}
				return w.s.Acquire(ctx, req)
			})
			lease := w.lock(w.c, holdfast.NoRenew())
			equal(w, "rest", time.Until(lease.Deadline()), 29*time.Second)
		},
		"Renew reports why it failed": func(w *world) {
			lease := w.lock(w.c, holdfast.NoRenew())
			deadline := lease.Deadline()
			w.p.fail(errNet)
			err := lease.Renew(w.Context())
			want(w, err, holdfast.ErrUnavailable, errNet)
			wantNone(w, err, holdfast.ErrLost)
			if !lease.Deadline().Equal(deadline) || lease.Err() != nil {
				w.Error("a failed renewal changed the lease")
			}
			w.p.hang()
			ctx, cancel := context.WithCancelCause(w.Context())
			why := errors.New("why")
			time.AfterFunc(time.Second, func() { cancel(why) })
			want(w, lease.Renew(ctx), why)
			w.p.heal()
			// The unlock comes after Renew has checked that the lease is held.
			want(w, lease.Renew(&hookCtx{Context: w.Context(), f: func() { mustUnlock(w, lease) }}), holdfast.ErrNotHeld)
		},
	}.run(t)
}

func TestDeadlines(t *testing.T) {
	scenarios{
		// This store does not return even when the context ends.
		"a hung renewal does not delay the loss signal": func(w *world) {
			never := make(chan struct{})
			defer close(never)
			w.p.renew.set(func(context.Context, []store.Renewal) ([]store.Renewed, error) {
				<-never
				return nil, errNet
			})
			lease := w.lock(w.c)
			work := lease.Context(w.Context())
			next := w.later(w.other)
			<-work.Done()
			w.took(29 * time.Second)
			want(w, context.Cause(work), holdfast.ErrLost)
			if !isDone(lease.Done()) || len(next) > 0 {
				w.Error("Done is open after the loss, or the next holder was granted before it")
			}
			want(w, lease.Err(), holdfast.ErrLost)
			mustUnlock(w, <-next)
			w.took(30 * time.Second)
		},
		"a loss matches no error of a context": func(w *world) {
			for i, failure := range []error{context.DeadlineExceeded, fmt.Errorf("read tcp: %w", context.Canceled)} {
				w.p.renew.set(func(context.Context, []store.Renewal) ([]store.Renewed, error) {
					return []store.Renewed{{Err: failure}}, nil
				})
				lease := mustLock(w, w.c, fmt.Sprint(i))
				<-lease.Done()
				want(w, lease.Err(), holdfast.ErrLost)
				wantNone(w, lease.Err(), context.DeadlineExceeded, context.Canceled)
			}
		},
		"a Renew whose context ends is no failure of the store": func(w *world) {
			w.p.hang()
			w.p.acquire.reset()
			c, seen := w.observed()
			lease := w.lock(c, holdfast.TTL(3*time.Second), holdfast.MaxHold(2*time.Second))
			ctx, cancel := context.WithTimeout(w.Context(), 500*time.Millisecond)
			defer cancel()
			want(w, lease.Renew(ctx), context.DeadlineExceeded)
			equal(w, "errors observed", seen.count(holdfast.EventError), 0)
		},
		// In rueidislock a hung renewal moved the deadline, so the holder's context ended seconds
		// after the grant of the next holder.
		"a hung renewal does not move the deadline": func(w *world) {
			lease := w.lock(w.c)
			time.Sleep(15 * time.Second) // renewed once, sent at 10 s
			w.p.hang()
			<-lease.Done()
			w.within(38*time.Second, 39*time.Second) // renewals may be a little early
		},
		"the deadline counts from the send time": func(w *world) {
			w.p.slow(0, 4*time.Second)
			lease := w.lock(w.c, holdfast.NoRenew())
			equal(w, "rest of 29 s after the acquire", time.Until(lease.Deadline()), 25*time.Second)
			w.p.renew.set(func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				defer time.Sleep(4 * time.Second)
				return w.s.Renew(ctx, grants)
			})
			must(w, lease.Renew(w.Context()))
			equal(w, "rest of 29 s after a renewal", time.Until(lease.Deadline()), 25*time.Second)
			w.p.acquire.reset()
			w.mark()
			lease = mustLock(w, w.c, "m")
			time.Sleep(15 * time.Second)
			equal(w, "deadline after a renewal at 10 s", lease.Deadline().Sub(w.start), 39*time.Second)
		},
		"a reply after the end of the lease is not a grant": func(w *world) {
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				answer, err := w.s.Acquire(ctx, req)
				if w.p.acquire.calls() == 1 {
					time.Sleep(2 * time.Second)
				}
				return answer, err
			})
			lease := w.lock(w.c, holdfast.TTL(time.Second))
			equal(w, "rest", time.Until(lease.Deadline()), 950*time.Millisecond)
			w.asked(2, 0, 0)
		},
		"a reply after the deadline does not revive the lease": func(w *world) {
			w.p.renew.set(func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				defer time.Sleep(25 * time.Second)
				return w.s.Renew(context.WithoutCancel(ctx), grants)
			})
			c, seen := w.observed()
			lease := w.lock(c)
			<-lease.Done()
			time.Sleep(time.Minute)
			want(w, lease.Err(), holdfast.ErrLost)
			equal(w, "events", seen.kinds(holdfast.EventLost, holdfast.EventRenewed, holdfast.EventError), "lost")
			w.free("n") // the renewal reached the store, so without a clean-up the name would be closed
		},
		"a renewal may grant a shorter TTL": func(w *world) {
			w.p.renew.set(func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
				if w.p.renew.calls() > 1 {
					return nil, errNet
				}
				g[0].TTL = 5 * time.Second
				return w.s.Renew(ctx, g)
			})
			lease := w.lock(w.c)
			w.lock(w.other)
			want(w, lease.Err(), holdfast.ErrLost)
		},
		"a lease is lost at once when the store says that it is gone": func(w *world) {
			lease := w.lock(w.c)
			w.breaks(lease)
			<-lease.Done()
			w.within(8*time.Second, 10*time.Second) // at its next renewal
			want(w, lease.Err(), holdfast.ErrLost)
			want(w, lease.Unlock(w.Context()), holdfast.ErrLost)
			want(w, lease.Unlock(w.Context()), holdfast.ErrNotHeld)
		},
		// In stores with sessions a single grant does not expire, so the core removes it.
		"a lost lease is removed from the store": func(w *world) {
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				ttl := req.TTL
				req.TTL = 24 * time.Hour // like a grant that lives as long as its session
				answer, err := w.s.Acquire(ctx, req)
				answer.TTL = ttl
				return answer, err
			})
			<-w.lock(w.c, holdfast.NoRenew()).Done()
			want(w, w.try(w.other), holdfast.ErrHeld) // the holder has its margin
			time.Sleep(time.Second)
			synctest.Wait()
			w.free("n")
		},
		"a clean-up that fails does not delay others": func(w *world) {
			w.p.leave.set(func(ctx context.Context, name string, id store.ID) error {
				if strings.HasPrefix(name, "bad") {
					return errNet
				}
				return w.s.Leave(ctx, name, id)
			})
			for i := range 140 { // more than are cleaned up at once
				for _, name := range []string{"bad", "good"} {
					mustLock(w, w.c, fmt.Sprint(name, i), holdfast.TTL(10*time.Minute), holdfast.MaxHold(5*time.Second))
				}
			}
			for i := range 140 {
				mustLock(w, w.other, fmt.Sprint("good", i))
			}
			w.within(5*time.Second, 10*time.Second)
		},
		"a slow observer delays neither losses nor renewals": func(w *world) {
			c := w.client(holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == holdfast.EventLost {
					time.Sleep(time.Minute)
				}
			}))
			a, b := mustLock(w, c, "a", holdfast.MaxHold(9500*time.Millisecond)), mustLock(w, c, "b", holdfast.MaxHold(9500*time.Millisecond))
			kept := w.lock(c)
			<-a.Done()
			<-b.Done()
			w.took(9500 * time.Millisecond)
			time.Sleep(50 * time.Second)
			must(w, kept.Err())
			time.Sleep(5 * time.Minute)
		},
	}.run(t)
}

func TestMaxHold(t *testing.T) {
	all := scenarios{
		// A lease that ends by itself leaves its holder a margin in which nobody else has the name. A
		// holder that calls Unlock has stopped working and needs none.
		"an unlock after it frees the name at once": func(w *world) {
			for _, reentrant := range []bool{false, true} {
				w.mark()
				lease := w.lock(w.c, holdfast.MaxHold(5*time.Second))
				got := w.later(w.other)
				if reentrant {
					inner, err := w.c.Lock(lease.Context(w.Context()), "n", holdfast.Reentrant())
					must(w, err)
					time.Sleep(5100 * time.Millisecond)
					want(w, inner.Unlock(w.Context()), holdfast.ErrLost)
					time.Sleep(100 * time.Millisecond)
					equal(w, "holders before the outer lease is unlocked", len(got), 0)
				} else {
					time.Sleep(5100 * time.Millisecond)
				}
				want(w, lease.Unlock(w.Context()), holdfast.ErrLost)
				next := <-got
				w.within(5100*time.Millisecond, 5200*time.Millisecond)
				want(w, lease.Unlock(w.Context()), holdfast.ErrNotHeld)
				mustUnlock(w, next)
			}
		},
		"it may be shorter than the reply takes": func(w *world) {
			w.p.slow(0, 50*time.Millisecond)
			lease := w.lock(w.c, holdfast.MaxHold(10*time.Millisecond))
			equal(w, "rest", time.Until(lease.Deadline()), 10*time.Millisecond)
		},
		"it does not include time in the queue": func(w *world) {
			first := w.lock(w.c)
			got := w.later(w.c, holdfast.MaxHold(10*time.Second))
			time.Sleep(9 * time.Second)
			mustUnlock(w, first)
			<-(<-got).Done()
			w.took(19 * time.Second)
		},
		"many leases that reach it do not disturb other renewals": func(w *world) {
			w.p.renew.set(func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
				select { // a store with a latency of 50 ms
				case <-time.After(50 * time.Millisecond):
					return w.s.Renew(ctx, g)
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			lease := w.lock(w.c)
			for i := range 6000 {
				mustLock(w, w.c, fmt.Sprint(i), holdfast.MaxHold(10020*time.Millisecond))
				time.Sleep(20 * time.Millisecond)
			}
			must(w, lease.Err())
		},
	}
	for _, limit := range []time.Duration{5 * time.Second, 30 * time.Second, 95 * time.Second} {
		all["it ends a lease despite renewal after "+limit.String()] = func(w *world) {
			lease := w.lock(w.c, holdfast.MaxHold(limit))
			for time.Since(w.start) < limit-time.Second {
				time.Sleep(500 * time.Millisecond)
				must(w, lease.Renew(w.Context()))
			}
			<-lease.Done()
			w.took(limit)
			want(w, lease.Err(), holdfast.ErrLost)
			w.lock(w.other)
			w.within(limit, limit+2500*time.Millisecond) // far earlier than after a TTL
		}
	}
	all.run(t)
}

// The test runs in real time, where timers are late. The loop polls, so that it sees the time
// between the deadline and the timer.
func TestErrReportsTheLossWithoutWaitingForATimer(t *testing.T) {
	c := newClient(t, memstore.New())
	for range 50 {
		lease := mustLock(t, c, "n", holdfast.NoRenew(), holdfast.TTL(10*time.Millisecond))
		for over := false; !over; {
			over = !time.Now().Before(lease.Deadline())
			if err := lease.Err(); over && !errors.Is(err, holdfast.ErrLost) {
				t.Fatalf("Err after the deadline: %v", err)
			}
		}
	}
}

func TestHeldLeaseCostsNoGoroutineAndLessThanAKilobyte(t *testing.T) {
	const n = 20_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("name:", i)
	}
	c := newClient(t, memstore.New())
	leases := make([]*holdfast.Lease, n)
	heap, goroutines := heapInUse(), runtime.NumGoroutine()
	for i, name := range names {
		leases[i] = mustLock(t, c, name)
	}
	between(t, "goroutines for all leases", runtime.NumGoroutine(), 0, goroutines+2)
	between(t, "bytes for a lease", (heapInUse()-heap)/n, 0, 1024)
	runtime.KeepAlive(leases)
}
