package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestHandoverNeedsNoRoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		first := mustLock(t, c, "n")
		served := lineUp(t, 1000, func(int) *holdfast.Client { return c }, "n", 0)
		mustUnlock(t, first)
		wantOrder(t, served(), 1000)
		// One renewal fetches the tokens for all hand-overs.
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

func TestAnotherClientWaitsNoLongerThanOneSlice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		busy, other := newClient(t, s), newClient(t, s)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 { // without a slice they would keep handing the name over
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

func TestClientKeepsItsSliceWhileAnotherWaits(t *testing.T) {
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
		// The first hand-over requests tokens and learns that another client waits. The name
		// goes to that client, and the rest queue behind it.
		lease := <-waiting
		start.want(t, 0)
		mustUnlock(t, lease)
		wantOrder(t, served(), 10)

		// With tokens in reserve, the client uses up its slice first.
		first = mustLock(t, other, "n")
		served = lineUp(t, 100, func(int) *holdfast.Client { return busy }, "n", time.Millisecond)
		mustUnlock(t, first)
		time.Sleep(10 * time.Millisecond) // the client busy hands the name over among its goroutines
		start = newClock()
		go func() { waiting <- mustLock(t, other, "n") }()
		lease = <-waiting
		start.wantWithin(t, 38*time.Millisecond, 42*time.Millisecond) // the rest of 50
		mustUnlock(t, lease)
		wantOrder(t, served(), 100)
	})
}

func TestNoTokensAreReservedForAGrantThatIsReleasedNext(t *testing.T) {
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

// Tokens that nobody uses let the tokens of a name run ahead of the store's clock.
func TestNoTokensAreReservedForAGrantThatCannotBeHandedOver(t *testing.T) {
	for name, opts := range map[string]func(i int) []holdfast.CallOption{
		"MaxHold":      func(int) []holdfast.CallOption { return []holdfast.CallOption{holdfast.MaxHold(time.Hour)} },
		"NoRenew":      func(int) []holdfast.CallOption { return []holdfast.CallOption{holdfast.NoRenew()} },
		"another Meta": func(i int) []holdfast.CallOption { return []holdfast.CallOption{holdfast.Meta(fmt.Sprint(i))} },
		"another TTL": func(i int) []holdfast.CallOption {
			return []holdfast.CallOption{holdfast.TTL(time.Minute + time.Duration(i)*time.Second)}
		},
		"some NoRenew":  func(i int) []holdfast.CallOption { return []holdfast.CallOption{holdfast.NoRenew()}[:i%2] },
		"hand-over off": func(int) []holdfast.CallOption { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				p := newProxy(s)
				p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
					if req.Tokens != 1 {
						t.Errorf("%d tokens were requested", req.Tokens)
					}
					time.Sleep(time.Millisecond)
					return s.Acquire(ctx, req)
				}
				limit := holdfast.DefaultHandoverLimit
				if name == "hand-over off" {
					limit = 0
				}
				c := newClient(t, p, holdfast.WithHandover(limit, holdfast.DefaultHandoverSlice))
				var wg sync.WaitGroup
				for i := range 20 {
					wg.Go(func() {
						for range 3 {
							lease, err := c.Lock(t.Context(), "n", opts(i)...)
							if err != nil {
								t.Error(err)
								return
							}
							mustUnlock(t, lease)
						}
					})
					synctest.Wait() // they arrive in order
				}
				wg.Wait()
			})
		})
	}
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

func TestCancelledWaiterPassesTheGrantOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder, c := newClient(t, s), newClient(t, s)
		lease := mustLock(t, holder, "n")
		// The first of three calls is queued at the store, and the second behind it. Both give
		// up.
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
		got := later(t, c, "n")
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

// During a hand-over the store replies that the grant is gone.
func TestExpiredGrantIsNotHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n")
		got := later(t, a, "n")
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

// One renewal returns Gone while another one, which requests tokens for a hand-over, is in
// flight and succeeds.
func TestGrantLostDuringAHandoverIsNotHandedOver(t *testing.T) {
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

// A store may grant a waiting call for a heartbeat only. Such a grant is handed over as well.
func TestShortGrantIsHandedOver(t *testing.T) {
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
		wg.Go(func() { mustUnlock(t, mustLock(t, newClient(t, s), "n")) }) // so that the slice applies
		synctest.Wait()
		asked := p.acquires.Load()
		mustUnlock(t, blocker)
		wg.Wait()
		if n := p.acquires.Load() - asked; n != 1 {
			t.Errorf("%d requests for ten locks, want 1", n)
		}
	})
}

func TestCancelledWaiterIgnoresMinHoldOfTheGrantItWasHanded(t *testing.T) {
	bad := 0
	for range 200 {
		bubble(t, func(t *testing.T) {
			a, b := pair(t)
			lease := mustLock(t, a, "n")
			ctx, cancel := context.WithCancel(t.Context())
			errs := make(chan error, 1)
			go func() {
				l, err := a.Lock(ctx, "n", holdfast.MinHold(time.Hour))
				if err == nil {
					l.Unlock(context.Background())
				}
				errs <- err
			}()
			synctest.Wait()
			cancel()
			mustUnlock(t, lease)
			if err := <-errs; err != nil {
				if _, err := b.TryLock(t.Context(), "n"); err != nil {
					bad++
				}
			}
		})
	}
	if bad > 0 {
		t.Errorf("%d of 200 cancelled Locks left the name closed for an hour", bad)
	}
}

// Unlock with a local waiter must hand over or release after one renewal.
func TestHandoverRenewsAtMostOnce(t *testing.T) {
	for name, test := range map[string]struct {
		opts    []holdfast.Option
		latency time.Duration
		granted time.Duration
	}{
		"no slice":                     {opts: []holdfast.Option{holdfast.WithHandover(10, 0)}},
		"latency of half a TTL":        {opts: []holdfast.Option{holdfast.WithTTL(time.Second)}, latency: 460 * time.Millisecond},
		"store grants less than asked": {granted: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				p := newProxy(s)
				p.acquire = func(ctx context.Context, r store.Request) (store.Answer, error) {
					if test.granted > 0 {
						r.TTL = test.granted
					}
					return s.Acquire(ctx, r)
				}
				p.renew = func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
					if p.renews.Load() > 1000 {
						return nil, errNet // ends the test
					}
					select {
					case <-time.After(test.latency):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					for i := range g {
						if test.granted > 0 {
							g[i].TTL = test.granted
						}
					}
					return s.Renew(ctx, g)
				}
				c := newClient(t, p, test.opts...)
				l := mustLock(t, c, "n")
				got := later(t, c, "n")
				start := newClock()
				l.Unlock(t.Context())
				next := <-got
				if n := p.renews.Load(); n > 5 {
					t.Errorf("Unlock took %v and %d renewals", time.Since(start.start), n)
				}
				next.Unlock(t.Context())
			})
		})
	}
}

func TestACallThatIsHandedALostGrantAsksTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c := newClient(t, s)
		first := mustLock(t, c, "n")
		got := make(chan *holdfast.Lease, 1)
		go func() { got <- mustLock(t, c, "n") }()
		synctest.Wait()
		if !holdfast.HandOverLost(first) {
			t.Fatal("the grant was not handed over")
		}
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("the waiting call got a lost grant")
		}
		if err := s.Release(t.Context(), "n", first.ID(), store.Keep{}); err != nil {
			t.Fatal(err)
		}
		holdfast.Drop(first)
		next := <-got
		if next.ID() == first.ID() || next.Token() <= first.Token() || next.Err() != nil {
			t.Errorf("token %d after %d, %v", next.Token(), first.Token(), next.Err())
		}
		mustUnlock(t, next)
	})
}
