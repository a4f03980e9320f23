package holdfast_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func TestHandover(t *testing.T) {
	all := scenarios{
		"it needs no round trip": func(w *world) {
			first := w.lock(w.c)
			served := w.lineUp(1000, 0, w.c)
			mustUnlock(w, first)
			served()
			w.asked(1, 1, 1) // one renewal fetches the tokens for all hand-overs
		},
		"tokens grow across it": func(w *world) {
			var last int64 // the lock guards it
			const moreThanABlock = 3000
			together(moreThanABlock, func(i int) {
				c := w.c
				if i%100 == 0 {
					c = w.other
				}
				lease := w.lock(c)
				if lease.Token() <= last {
					w.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				mustUnlock(w, lease)
			})
		},
		"another client waits no longer than one slice": func(w *world) {
			stop := w.keepBusy(w.c, 4) // without a slice they would keep handing the name over
			for range 20 {
				time.Sleep(7 * time.Millisecond)
				w.mark()
				lease := w.lock(w.other)
				w.within(0, holdfast.DefaultHandoverSlice+2*time.Millisecond)
				mustUnlock(w, lease)
			}
			stop()
		},
		"a client keeps its slice while another waits": func(w *world) {
			first := w.lock(w.c)
			served := w.lineUp(10, time.Millisecond, w.c)
			waiting := w.later(w.other)
			mustUnlock(w, first)
			// The first hand-over requests tokens and learns that another client waits. The name
			// goes to that client, and the rest queue behind it.
			lease := <-waiting
			w.took(0)
			mustUnlock(w, lease)
			served()

			// With tokens in reserve, the client uses up its slice first.
			first = w.lock(w.other)
			served = w.lineUp(100, time.Millisecond, w.c)
			mustUnlock(w, first)
			time.Sleep(10 * time.Millisecond)
			w.mark()
			mustUnlock(w, w.lock(w.other))
			w.within(38*time.Millisecond, 42*time.Millisecond) // the rest of 50
			served()
		},
		"no tokens are reserved for a grant that is released next": func(w *world) {
			first := w.lock(w.c)
			served := w.lineUp(2, time.Millisecond, w.other, w.c)
			mustUnlock(w, first)
			served()
			equal(w, "token three grants later", w.lock(w.c).Token(), first.Token()+3)
		},
		"it can be turned off": func(w *world) {
			c := w.client(holdfast.WithHandover(0, 0))
			first := w.lock(c)
			served := w.lineUp(5, 0, c)
			mustUnlock(w, first)
			served()
			w.asked(6, 0, 6)
		},
		"a grant that is gone is not handed over": func(w *world) {
			lease := w.lock(w.c)
			got := w.later(w.c)
			w.breaks(lease)
			thief := w.lock(w.other)
			want(w, lease.Unlock(w.Context()), holdfast.ErrLost)
			synctest.Wait()
			equal(w, "holders beside another", len(got), 0)
			mustUnlock(w, thief)
			next := <-got
			if next.Token() <= thief.Token() {
				w.Errorf("token %d after %d", next.Token(), thief.Token())
			}
			mustUnlock(w, next)
		},
		// One renewal returns Gone while another one, which requests tokens for a hand-over, is in
		// flight and succeeds.
		"a grant that is lost during it is not handed over": func(w *world) {
			w.p.renew.set(func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				if grants[0].Tokens == 0 {
					return []store.Renewed{{Status: store.Gone}}, nil
				}
				defer time.Sleep(time.Second)
				return w.s.Renew(ctx, grants)
			})
			lease := w.lock(w.c)
			served := w.lineUp(1, 0, w.c)
			time.Sleep(9500 * time.Millisecond)
			lease.Unlock(w.Context()) // and at 10 s the lease is renewed
			served()
			equal(w, "requests", w.p.acquire.calls(), 2)
		},
		"a call that is handed a lost grant asks the store": func(w *world) {
			first := w.lock(w.c)
			got := w.later(w.c)
			if !holdfast.HandOverLost(first) {
				w.Fatal("the grant was not handed over")
			}
			synctest.Wait()
			equal(w, "calls that got a lost grant", len(got), 0)
			must(w, w.s.Release(w.Context(), "n", first.ID(), store.Keep{}))
			holdfast.Drop(first)
			next := <-got
			if next.ID() == first.ID() || next.Token() <= first.Token() || next.Err() != nil {
				w.Errorf("token %d after %d, %v", next.Token(), first.Token(), next.Err())
			}
			mustUnlock(w, next)
		},
		// A store may grant a waiting call for a heartbeat only.
		"a short grant is handed over as well": func(w *world) {
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				answer, err := w.s.Acquire(ctx, req)
				answer.TTL = min(answer.TTL, 3*time.Second)
				return answer, err
			})
			blocker := w.lock(w.other)
			served := w.lineUp(10, 0, w.c)
			next := w.later(newClient(w, w.s)) // so that the slice applies
			asked := w.p.acquire.calls()
			mustUnlock(w, blocker)
			served()
			mustUnlock(w, <-next)
			equal(w, "requests for ten locks", w.p.acquire.calls()-asked, 1)
		},
		"a cancelled waiter ignores the MinHold of the grant that it was handed": func(w *world) {
			for range 200 {
				lease := w.lock(w.c)
				ctx, cancel := context.WithCancel(w.Context())
				over := w.laterErr(ctx, w.c, holdfast.MinHold(time.Hour))
				cancel()
				mustUnlock(w, lease)
				if <-over == nil {
					time.Sleep(time.Hour)
				}
				synctest.Wait()
				w.free("n")
			}
		},
		"a cancelled waiter does not wait for the release of the grant that it was handed": func(w *world) {
			for range 200 {
				lease := w.lock(w.c)
				ctx, cancel := context.WithCancel(w.Context())
				returned := make(chan *holdfast.Lease)
				go func() {
					next, _ := w.c.Lock(ctx, "n")
					w.took(0)
					returned <- next
				}()
				synctest.Wait()
				w.p.release.set(func(ctx context.Context, _ string, _ store.ID, _ store.Keep) error { return hang(ctx) })
				w.mark()
				cancel()
				lease.Unlock(w.Context())
				next := <-returned
				w.p.heal()
				if next != nil {
					mustUnlock(w, next)
				}
				time.Sleep(time.Minute)
			}
		},
	}
	// Tokens that nobody uses let the tokens of a name run ahead of the store's clock.
	for name, opts := range map[string]func(i int) []holdfast.CallOption{
		"MaxHold":      func(int) []holdfast.CallOption { return []holdfast.CallOption{holdfast.MaxHold(time.Hour)} },
		"NoRenew":      func(i int) []holdfast.CallOption { return []holdfast.CallOption{holdfast.NoRenew()}[:i%2] },
		"another Meta": func(i int) []holdfast.CallOption { return []holdfast.CallOption{holdfast.Meta(fmt.Sprint(i))} },
		"another TTL": func(i int) []holdfast.CallOption {
			return []holdfast.CallOption{holdfast.TTL(time.Minute + time.Duration(i)*time.Second)}
		},
	} {
		all["no tokens are reserved for a grant that cannot be handed over: "+name] = func(w *world) {
			w.p.acquire.set(func(ctx context.Context, req store.Request) (store.Answer, error) {
				equal(w, "tokens requested", req.Tokens, 1)
				time.Sleep(time.Millisecond)
				return w.s.Acquire(ctx, req)
			})
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					for range 3 {
						mustUnlock(w, w.lock(w.c, opts(i)...))
					}
				})
				synctest.Wait() // they arrive in order
			}
			wg.Wait()
		}
	}
	for name, test := range map[string]struct {
		opts             []holdfast.Option
		latency, granted time.Duration
	}{
		"no slice":                     {opts: []holdfast.Option{holdfast.WithHandover(10, 0)}},
		"latency of half a TTL":        {opts: []holdfast.Option{holdfast.WithTTL(time.Second)}, latency: 460 * time.Millisecond},
		"store grants less than asked": {granted: 10 * time.Second},
	} {
		all["it renews at most once: "+name] = func(w *world) {
			shorten := func(ttl *time.Duration) {
				if test.granted > 0 {
					*ttl = test.granted
				}
			}
			w.p.acquire.set(func(ctx context.Context, r store.Request) (store.Answer, error) {
				shorten(&r.TTL)
				return w.s.Acquire(ctx, r)
			})
			w.p.renew.set(func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
				if w.p.renew.calls() > 1000 {
					return nil, errNet // ends the test
				}
				select {
				case <-time.After(test.latency):
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				shorten(&g[0].TTL)
				return w.s.Renew(ctx, g)
			})
			c := w.client(test.opts...)
			lease := w.lock(c)
			got := w.later(c)
			lease.Unlock(w.Context())
			next := <-got
			between(w, "renewals", w.p.renew.calls(), 0, 5)
			next.Unlock(w.Context())
		}
	}
	all.run(t)
}
