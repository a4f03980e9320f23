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

// lineUp starts n goroutines that lock name one after the other in a known order, and
// returns the order in which they got it when all are through.
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
		synctest.Wait() // it waits before the next comes
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

func TestAtMostOneRequestPerClientAndNameStandsInTheStore(t *testing.T) {
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
		// Woken, it asks again: for the lock and for tokens for all who wait behind it.
		if a, n := p.acquires.Load(), p.renews.Load(); a != 2 || n != 0 {
			t.Errorf("%d acquires and %d renewals for 50 hand-overs, want 2 and none", a, n)
		}
	})
}

func TestAHotNameMovesBetweenGoroutinesWithoutARoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		first := mustLock(t, c, "n")
		served := lineUp(t, 1000, func(int) *holdfast.Client { return c }, "n", 0)
		mustUnlock(t, first)
		wantOrder(t, served(), 1000)
		// One renewal fetches the tokens for all of them.
		if a, n, r := p.acquires.Load(), p.renews.Load(), p.releases.Load(); a != 1 || n != 1 || r != 1 {
			t.Errorf("%d acquires, %d renewals, %d releases, want one of each", a, n, r)
		}
	})
}

func TestTokensGrowAcrossHandovers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		var (
			mu   sync.Mutex
			last int64
			wg   sync.WaitGroup
		)
		for i := range 3000 { // more than one block of tokens
			wg.Go(func() {
				c := a
				if i%100 == 0 {
					c = b
				}
				lease, err := c.Lock(context.Background(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				mu.Unlock()
				lease.Unlock(context.Background())
			})
		}
		wg.Wait()
	})
}

func TestAnotherProcessWaitsNoLongerThanOneSlice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		busy, other := newClient(t, s), newClient(t, s)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 { // keeps the name for ever among its own
			wg.Go(func() {
				for !isDone(stop) {
					lease := mustLock(t, busy, "n")
					time.Sleep(time.Millisecond)
					mustUnlock(t, lease)
				}
			})
		}
		for range 20 {
			time.Sleep(7 * time.Millisecond)
			start := newClock()
			lease := mustLock(t, other, "n")
			start.wantWithin(t, 0, holdfast.DefaultHandoverSlice+2*time.Millisecond)
			mustUnlock(t, lease)
		}
		close(stop)
		wg.Wait()
	})
}

func TestAProcessKeepsItsSliceWhileAnotherWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		busy, other := newClient(t, s), newClient(t, s)
		first := mustLock(t, busy, "n")
		waiting := make(chan *holdfast.Lease)
		served := lineUp(t, 10, func(int) *holdfast.Client { return busy }, "n", time.Millisecond)
		go func() { waiting <- mustLock(t, other, "n") }()
		synctest.Wait()
		start := newClock()
		mustUnlock(t, first)
		// The first hand-over asks the store for tokens and learns that another waits: the
		// name goes there, and the rest queue behind it.
		lease := <-waiting
		start.want(t, 0)
		mustUnlock(t, lease)
		wantOrder(t, served(), 10)

		// Tokens in hand, the slice is used up first.
		first = mustLock(t, other, "n")
		served = lineUp(t, 100, func(int) *holdfast.Client { return busy }, "n", time.Millisecond)
		mustUnlock(t, first)
		time.Sleep(10 * time.Millisecond) // busy passes it on among its own
		start = newClock()
		go func() { waiting <- mustLock(t, other, "n") }()
		lease = <-waiting
		start.wantWithin(t, 38*time.Millisecond, 42*time.Millisecond) // the rest of 50
		mustUnlock(t, lease)
		wantOrder(t, served(), 100)
	})
}

func TestTokensAreNotWastedOnAGrantThatIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		first := mustLock(t, a, "n")
		served := lineUp(t, 2, func(i int) *holdfast.Client { return []*holdfast.Client{b, a}[i] }, "n", time.Millisecond)
		mustUnlock(t, first)
		wantOrder(t, served(), 2)
		if last := mustLock(t, a, "n"); last.Token() != first.Token()+3 {
			t.Errorf("token %d, three grants after %d", last.Token(), first.Token())
		}
	})
}

func TestHandoverCanBeTurnedOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p, holdfast.WithHandover(0, 0))
		first := mustLock(t, c, "n")
		served := lineUp(t, 5, func(int) *holdfast.Client { return c }, "n", 0)
		mustUnlock(t, first)
		wantOrder(t, served(), 5)
		if a, r := p.acquires.Load(), p.releases.Load(); a != 6 || r != 6 {
			t.Errorf("%d acquires, %d releases, want 6 of each", a, r)
		}
	})
}

func TestAWaitThatIsLongerThanTheTTLCostsNothingOfTheLease(t *testing.T) {
	for name, opts := range map[string][]holdfast.Option{"with hand-over": nil, "without": {holdfast.WithHandover(0, 0)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newClient(t, memstore.New(), opts...)
				first := mustLock(t, c, "n")
				got := make(chan *holdfast.Lease)
				go func() { got <- mustLock(t, c, "n") }()
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

func TestAWaiterThatAsksForSomethingElseGoesToTheStore(t *testing.T) {
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
				got := make(chan *holdfast.Lease)
				go func() { got <- mustLock(t, c, "n", opts...) }()
				synctest.Wait()
				mustUnlock(t, first)
				mustUnlock(t, <-got)
				if a, r := p.acquires.Load(), p.releases.Load(); a != 2 || r != 2 {
					t.Errorf("%d acquires, %d releases, want 2 of each", a, r)
				}
			})
		})
	}
}

func TestACancelledWaiterPassesTheBaton(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder, c := newClient(t, s), newClient(t, s)
		lease := mustLock(t, holder, "n")
		// The first of three stands at the store, the second queues behind it. Both give up.
		errs := make(chan error)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			go func() {
				_, err := c.Lock(ctx, "n")
				errs <- err
			}()
			synctest.Wait()
		}
		got := make(chan *holdfast.Lease)
		go func() { got <- mustLock(t, c, "n") }()
		for range 2 {
			want(t, <-errs, context.DeadlineExceeded, holdfast.ErrHeld)
		}
		synctest.Wait()
		if info, _ := holder.Inspect(t.Context(), "n"); len(info.Waiters) != 1 {
			t.Errorf("%d waiters in the store, want the third alone", len(info.Waiters))
		}
		mustUnlock(t, lease)
		mustUnlock(t, <-got)
	})
}

// A waiter that is cancelled in the very moment in which the lock is handed to it must
// neither keep it nor drop it: rueidislock had that wake-up swallowed.
func TestACancelledWaiterNeverSwallowsTheWakeUpOfTheNext(t *testing.T) {
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
			second := make(chan *holdfast.Lease)
			go func() { second <- mustLock(t, c, "n") }()
			synctest.Wait()
			go cancel()
			go lease.Unlock(context.Background())
			if lease := <-first; lease != nil {
				mustUnlock(t, lease)
			}
			mustUnlock(t, <-second)
		}
	})
}

func TestALostGrantSendsTheWaitersBackToTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		lease := mustLock(t, c, "n")
		served := lineUp(t, 3, func(int) *holdfast.Client { return c }, "n", 0)
		done := lease.Done()
		p.set(func() {
			p.renew = func(context.Context, []store.Renewal) ([]store.Renewed, error) { return nil, errNet }
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
		start.want(t, time.Second) // the margin: what the store still counts
		want(t, lease.Unlock(t.Context()), holdfast.ErrLost)
		free(t, newClient(t, p.Store), "n")
	})
}

// The store says during a hand-over that the grant is gone.
func TestAGrantThatIsGoneIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n")
		got := make(chan *holdfast.Lease)
		go func() { got <- mustLock(t, a, "n") }()
		synctest.Wait()
		if err := b.Break(t.Context(), "n", lease.ID()); err != nil {
			t.Fatal(err)
		}
		thief := mustLock(t, b, "n")
		want(t, lease.Unlock(t.Context()), holdfast.ErrLost)
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("two holders")
		default:
		}
		mustUnlock(t, thief)
		next := <-got
		if next.Token() <= thief.Token() {
			t.Errorf("token %d after %d", next.Token(), thief.Token())
		}
		mustUnlock(t, next)
	})
}

// One renewal says that the grant is gone while another, which fetches tokens for a
// hand-over, is under way and succeeds.
func TestAGrantThatIsLostDuringAHandoverIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.renew = func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
			if grants[0].Tokens == 0 {
				return []store.Renewed{{Status: store.Gone}}, nil
			}
			out, err := s.Renew(ctx, grants)
			time.Sleep(time.Second)
			return out, err
		}
		c := newClient(t, p)
		lease := mustLock(t, c, "n")
		served := lineUp(t, 1, func(int) *holdfast.Client { return c }, "n", 0)
		time.Sleep(9500 * time.Millisecond)
		lease.Unlock(t.Context()) // and at 10 s the lease is renewed
		served()
		if n := p.acquires.Load(); n != 2 {
			t.Errorf("%d requests: a lost grant was handed over", n)
		}
	})
}

func TestManyTryLocksAtOnceAskTheStoreOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			time.Sleep(10 * time.Millisecond) // a round trip
			return s.Acquire(ctx, req)
		}
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

func TestTryLockIsAnsweredTogetherWithTheOneThatStands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			time.Sleep(10 * time.Millisecond) // a round trip
			return s.Acquire(ctx, req)
		}
		c, holder := newClient(t, p), newClient(t, s)
		lease := mustLock(t, holder, "n")
		got := make(chan *holdfast.Lease)
		go func() { got <- mustLock(t, c, "n") }()
		synctest.Wait()
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

func TestTryLockDoesNotOvertakeAWaiterOfItsOwnProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, b, "n")
		got := make(chan *holdfast.Lease)
		go func() { got <- mustLock(t, a, "n") }()
		synctest.Wait()
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

func TestReadersOfOneClientGoTogetherAndAWriterIsNotOvertaken(t *testing.T) {
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
		if got := fmt.Sprint(events); got != "[r1 r2 w r3 r4]" {
			t.Errorf("served %s", got)
		}
		start.want(t, 3*time.Second)
	})
}

// A hot name under real time and real parallelism: exclusion, order of tokens, nothing
// left.
func TestManyGoroutinesOfManyClientsOnOneName(t *testing.T) {
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
					// The race detector sees these if two are inside.
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

// A store may grant a waiting call for a heartbeat only. Such a grant is handed over as well.
func TestAShortGrantIsHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			answer, err := s.Acquire(ctx, req)
			answer.TTL = min(answer.TTL, 3*time.Second)
			return answer, err
		}
		c, other := newClient(t, p), newClient(t, s)
		blocker := mustLock(t, other, "n")
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { mustUnlock(t, mustLock(t, c, "n")) })
		}
		synctest.Wait()
		wg.Go(func() { mustUnlock(t, mustLock(t, newClient(t, s), "n")) }) // so a slice counts
		synctest.Wait()
		asked := p.acquires.Load()
		mustUnlock(t, blocker)
		wg.Wait()
		if n := p.acquires.Load() - asked; n != 1 {
			t.Errorf("%d requests for ten locks, want 1", n)
		}
	})
}

// withoutQueue is a proxy in front of a store that serves in no order.
func withoutQueue(s store.Store) *proxy {
	p := newProxy(s)
	p.caps = func(c *store.Capabilities) {
		c.Instant = false
		c.Features &^= store.FeatureQueue
	}
	return p
}

func TestALongSliceDoesNotKeepAFreeNameFromWaitersWithoutAQueue(t *testing.T) {
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

func TestTryLockIsNotAnsweredWithAnOldRefusalWithoutAQueue(t *testing.T) {
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
