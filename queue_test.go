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
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// lineUp starts n goroutines, which queue for a name in a known order. The returned function
// waits until all have had the lock, and returns the order in which they were granted.
func lineUp(t *testing.T, n int, clientOf func(i int) *holdfast.Client, name string, hold time.Duration) func() []int {
	t.Helper()
	var (
		mu    sync.Mutex
		order []int
		wg    sync.WaitGroup
	)
	for i := range n {
		wg.Go(func() {
			lease, err := clientOf(i).Lock(context.Background(), name)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			time.Sleep(hold)
			if err := lease.Unlock(context.Background()); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		synctest.Wait() // the goroutine waits before the next one starts
	}
	return func() []int {
		wg.Wait()
		return order
	}
}

func wantOrder(t *testing.T, got []int, n int) {
	t.Helper()
	in := make([]int, n)
	for i := range in {
		in[i] = i
	}
	if !slices.Equal(got, in) {
		t.Errorf("served in the order %v", got)
	}
}

func TestGoroutinesOfOneClientAreServedInOrderOfArrival(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		first := mustLock(t, c, "n")
		served := lineUp(t, 20, func(int) *holdfast.Client { return c }, "n", time.Millisecond)
		mustUnlock(t, first)
		wantOrder(t, served(), 20)
	})
}

func TestClientsAreServedInOrderOfArrival(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		clients := make([]*holdfast.Client, 10)
		for i := range clients {
			clients[i] = newClient(t, s)
		}
		first := mustLock(t, newClient(t, s), "n")
		served := lineUp(t, 10, func(i int) *holdfast.Client { return clients[i] }, "n", time.Second)
		mustUnlock(t, first)
		wantOrder(t, served(), 10)
	})
}

func TestEachClientHasOneRequestPerNameAtTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		busy, holder := newClient(t, p), newClient(t, s)
		lease := mustLock(t, holder, "n")
		served := lineUp(t, 50, func(int) *holdfast.Client { return busy }, "n", 0)
		if n := p.acquires.Load(); n != 1 {
			t.Errorf("50 waiting goroutines asked %d times, want once", n)
		}
		info, _ := holder.Inspect(t.Context(), "n")
		if len(info.Waiters) != 1 {
			t.Errorf("%d waiters in the store, want 1", len(info.Waiters))
		}
		mustUnlock(t, lease)
		wantOrder(t, served(), 50)
		// After the wake-up, the client asks again, for the lock and for tokens for the waiters
		// behind it.
		if a, n := p.acquires.Load(), p.renews.Load(); a != 2 || n != 0 {
			t.Errorf("%d acquires and %d renewals for 50 hand-overs, want 2 and none", a, n)
		}
	})
}

func TestWaitLongerThanTheTTLDoesNotShortenTheLease(t *testing.T) {
	for name, opts := range map[string][]holdfast.Option{"with hand-over": nil, "without": {holdfast.WithHandover(0, 0)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newClient(t, memstore.New(), opts...)
				first := mustLock(t, c, "n")
				got := later(t, c, "n")
				time.Sleep(10 * time.Minute)
				mustUnlock(t, first)
				lease := <-got
				if left := time.Until(lease.Deadline()); left != 29*time.Second {
					t.Errorf("a lease with %v left", left)
				}
				time.Sleep(10 * time.Minute)
				mustUnlock(t, lease)
			})
		})
	}
}

func TestWaiterWithADifferentRequestGoesToTheStore(t *testing.T) {
	for name, opts := range map[string][]holdfast.CallOption{
		"another TTL":  {holdfast.TTL(time.Minute)},
		"another meta": {holdfast.Meta("other")},
		"no renewal":   {holdfast.NoRenew()},
		"a MaxHold":    {holdfast.MaxHold(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newProxy(memstore.New())
				c := newClient(t, p)
				first := mustLock(t, c, "n")
				got := later(t, c, "n", opts...)
				mustUnlock(t, first)
				mustUnlock(t, <-got)
				if a, r := p.acquires.Load(), p.releases.Load(); a != 2 || r != 2 {
					t.Errorf("%d acquires, %d releases, want 2 of each", a, r)
				}
			})
		})
	}
}

// A waiter that is cancelled while the lock is handed to it must pass it on. rueidislock lost the
// wake-up in this case.
func TestCancelledWaiterPassesTheWakeUpOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		for range 2000 {
			lease := mustLock(t, c, "n")
			ctx, cancel := context.WithCancel(t.Context())
			first := make(chan *holdfast.Lease)
			go func() {
				lease, _ := c.Lock(ctx, "n")
				first <- lease
			}()
			synctest.Wait()
			second := later(t, c, "n")
			go cancel()
			go lease.Unlock(context.Background())
			if lease := <-first; lease != nil {
				mustUnlock(t, lease)
			}
			mustUnlock(t, <-second)
		}
	})
}

func TestLostGrantSendsLocalWaitersToTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		lease := mustLock(t, c, "n")
		served := lineUp(t, 3, func(int) *holdfast.Client { return c }, "n", 0)
		done := lease.Done()
		p.set(func() {
			p.renew = failRenew
			p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
				if !isDone(done) {
					t.Error("a waiter asks before the holder knows of its loss")
				}
				return p.Store.Acquire(ctx, req)
			}
		})
		<-done
		want(t, lease.Err(), holdfast.ErrLost)
		p.set(func() { p.renew = nil })
		start := newClock()
		wantOrder(t, served(), 3)
		start.want(t, time.Second) // the margin, during which the store still has the grant
		want(t, lease.Unlock(t.Context()), holdfast.ErrLost)
		free(t, newClient(t, p.Store), "n")
	})
}

// slowProxy returns a proxy on which a request takes 10 ms to reach the store.
func slowProxy(s store.Store) *proxy {
	p := newProxy(s)
	p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
		time.Sleep(10 * time.Millisecond)
		return s.Acquire(ctx, req)
	}
	return p
}

func TestConcurrentTryLocksShareOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := slowProxy(s)
		c, holder := newClient(t, p), newClient(t, s)
		lease := mustLock(t, holder, "n")
		start := newClock()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := c.TryLock(t.Context(), "n")
				want(t, err, holdfast.ErrHeld)
			})
		}
		wg.Wait()
		start.want(t, 10*time.Millisecond)
		if n := p.acquires.Load(); n != 1 {
			t.Errorf("the store was asked %d times, want once", n)
		}
		mustUnlock(t, lease)
	})
}

func TestTryLockSharesTheReplyOfARequestInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := slowProxy(s)
		c, holder := newClient(t, p), newClient(t, s)
		lease := mustLock(t, holder, "n")
		got := later(t, c, "n")
		start := newClock()
		for range 2 { // during the round trip, and after it
			_, err := c.TryLock(t.Context(), "n")
			want(t, err, holdfast.ErrHeld)
			start.want(t, 10*time.Millisecond)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
	})
}

func TestTryLockDoesNotOvertakeALocalWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, b, "n")
		got := later(t, a, "n")
		time.Sleep(time.Second)
		_, err := a.TryLock(t.Context(), "n")
		var held *holdfast.HeldError
		if !errors.As(err, &held) || held.Holders[0].Owner != "bob" || held.Holders[0].Left != 29*time.Second {
			t.Errorf("TryLock: %v", err)
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
	})
}

func TestLocalReadersShareAndDoNotOvertakeAWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		var (
			mu     sync.Mutex
			events []string
			wg     sync.WaitGroup
		)
		run := func(name string, lock func(context.Context, string, ...holdfast.CallOption) (*holdfast.Lease, error)) {
			wg.Go(func() {
				lease, err := lock(context.Background(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				events = append(events, name)
				mu.Unlock()
				time.Sleep(time.Second)
				lease.Unlock(context.Background())
			})
			synctest.Wait()
		}
		start := newClock()
		run("r1", c.RLock)
		run("r2", c.RLock)
		run("w", c.Lock)
		run("r3", c.RLock)
		run("r4", c.RLock)
		wg.Wait()
		slices.Sort(events[3:]) // these two are served together
		if got := fmt.Sprint(events); got != "[r1 r2 w r3 r4]" {
			t.Errorf("served %s", got)
		}
		start.want(t, 3*time.Second)
	})
}

// The test uses a contended name in real time and with real parallelism. It checks exclusion,
// growing tokens, and that nothing is left behind.
func TestManyClientsWithManyGoroutinesExcludeEachOther(t *testing.T) {
	s := memstore.New()
	var (
		inside  int
		last    int64
		entered int
		wg      sync.WaitGroup
	)
	const clients, goroutines, rounds = 4, 8, 100
	for range clients {
		c := newClient(t, s)
		for range goroutines {
			wg.Go(func() {
				for range rounds {
					lease := mustLock(t, c, "n")
					// With two holders, the race detector reports these accesses.
					if inside++; inside != 1 {
						t.Errorf("%d holders", inside)
					}
					if lease.Token() <= last {
						t.Errorf("token %d after %d", lease.Token(), last)
					}
					last = lease.Token()
					entered++
					inside--
					mustUnlock(t, lease)
				}
			})
		}
	}
	wg.Wait()
	if entered != clients*goroutines*rounds {
		t.Errorf("entered %d times", entered)
	}
	free(t, newClient(t, s), "n")
}

func TestBusyClientDoesNotStarveOthersWhenTheStoreHasNoQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		busy, other := newClient(t, withoutQueue(s)), newClient(t, withoutQueue(s))
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for !isDone(stop) {
					lease := mustLock(t, busy, "n")
					time.Sleep(time.Millisecond)
					mustUnlock(t, lease)
				}
			})
		}
		time.Sleep(7 * time.Millisecond)
		start := newClock()
		lease, err := other.Lock(t.Context(), "n", holdfast.Wait(time.Minute))
		if err != nil {
			t.Fatalf("starved for %v", time.Since(start.start))
		}
		mustUnlock(t, lease)
		close(stop)
		wg.Wait()
	})
}

func TestNextLocalWaiterInheritsThePlaceOfACancelledOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder, a, b := newClient(t, s), newClient(t, s), newClient(t, s)
		l := mustLock(t, holder, "n")
		order := make(chan string, 2)
		ctx, cancel := context.WithCancel(t.Context())
		go a.Lock(ctx, "n") // is first in the queue
		synctest.Wait()
		var wg sync.WaitGroup
		defer wg.Wait()
		take := func(c *holdfast.Client, who string) {
			wg.Go(func() {
				l := mustLock(t, c, "n")
				order <- who
				mustUnlock(t, l)
			})
			synctest.Wait()
		}
		take(a, "a, which came first")
		take(b, "b, which came second")
		cancel()
		synctest.Wait()
		mustUnlock(t, l)
		if first := <-order; first != "a, which came first" {
			t.Errorf("first served: %s", first)
		}
		<-order
	})
}

func TestLongRetryIntervalDoesNotDelayOtherCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder, c := newClient(t, s), newClient(t, withoutQueue(s))
		l := mustLock(t, holder, "n")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if l, err := c.Lock(ctx, "n", holdfast.Retry(holdfast.Every(time.Hour))); err == nil {
				l.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		time.AfterFunc(time.Second, func() { l.Unlock(context.Background()) })
		start := newClock()
		mustUnlock(t, mustLock(t, c, "n"))
		if d := time.Since(start.start); d > 5*time.Second {
			t.Errorf("a call with the default strategy waited %v for a name that was free after 1 s", d)
		}
	})
}

func TestLongRetryIntervalAfterAFailureDoesNotDelayOtherCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			if p.acquires.Load() == 1 {
				return store.Answer{}, errNet // fails once
			}
			return s.Acquire(ctx, req)
		}
		c := newClient(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if l, err := c.Lock(ctx, "n", holdfast.Retry(holdfast.Every(time.Hour))); err == nil {
				l.Unlock(context.Background())
			}
		}()
		time.Sleep(time.Minute)
		start := newClock()
		mustUnlock(t, mustLock(t, c, "n"))
		start.wantWithin(t, 0, time.Second)
	})
}

func TestALongSliceDoesNotDelayLocalWaitersWhenTheStoreHasNoQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, withoutQueue(memstore.New()), holdfast.WithHandover(1, time.Hour))
		lease := mustLock(t, c, "n")
		start := newClock()
		var wg sync.WaitGroup
		wg.Go(func() {
			l := mustLock(t, c, "n", holdfast.Meta("other"))
			start.wantWithin(t, time.Second, 2*time.Second)
			mustUnlock(t, l)
		})
		time.Sleep(time.Second)
		mustUnlock(t, lease)
		wg.Wait()
	})
}

func TestTryLockDoesNotReturnAnOldRefusalWhenTheStoreHasNoQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, withoutQueue(s)), newClient(t, s)
		blocker := mustLock(t, other, "n")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.RLock(ctx, "n", holdfast.Retry(holdfast.Every(time.Minute))) })
		time.Sleep(time.Second)
		mustUnlock(t, blocker)
		time.Sleep(30 * time.Second)
		lease, err := c.TryRLock(t.Context(), "n")
		if err != nil {
			t.Errorf("TryRLock of a name that is free for 30 s: %v", err)
		} else {
			mustUnlock(t, lease)
		}
		cancel()
		wg.Wait()
	})
}

// The first call waits in the store, which wakes nobody while it hangs. The second call waits behind
// it.
func TestACallBehindAWaitingCallLearnsInTimeThatTheStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			answer, err := s.Acquire(ctx, req)
			if answer.Refusal != nil {
				answer.Refusal.Again = 10 * time.Second
			}
			return answer, err
		}
		other, c := newClient(t, s), newClient(t, p)
		mustLock(t, other, "n")
		go c.Lock(context.Background(), "n")
		synctest.Wait()
		p.set(func() {
			p.acquire = hangAcquire
			p.wait = func(ctx context.Context, _ string, _ store.ID) error { return hang(ctx) }
		})
		start := newClock()
		_, err := c.Lock(context.Background(), "n")
		want(t, err, holdfast.ErrUnavailable)
		start.wantWithin(t, 5*time.Second, 6*time.Second)
	})
}
