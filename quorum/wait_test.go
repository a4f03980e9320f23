package quorum_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// mustWait waits until a queued request is granted, and returns how many calls that took.
func mustWait(t *testing.T, q *quorum.Store, req store.Request) (calls int) {
	t.Helper()
	for {
		a, err := q.Acquire(t.Context(), req)
		if calls++; err == nil && a.Granted() {
			return calls
		}
		must(t, cmp.Or(err, q.Wait(t.Context(), req.Name, req.ID)))
	}
}

func TestBell(t *testing.T) {
	nodeTests{
		"a waiter is woken": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			setAll(nodes, nil, slow(time.Millisecond))
			holder, waiter := request("n"), queued("n")
			mustAcquire(t, q, holder)
			time.Sleep(time.Second)
			time.AfterFunc(200*time.Millisecond, func() {
				bell := q.Order("n", 0)
				_, all := votes(t, nodes, waiter)
				if _, places := votes(t, nodes[bell:bell+1], waiter); places != 1 || all != 1 {
					t.Errorf("the waiter is queued at %d nodes, at the bell: %d", all, places)
				}
			})
			time.AfterFunc(300*time.Millisecond, func() { mustRelease(t, q, holder) })
			begin, calls := time.Now(), mustWait(t, q, waiter)
			if took := time.Since(begin); took < 300*time.Millisecond || took > 310*time.Millisecond || calls > 5 {
				t.Errorf("granted after %v with %d calls, want 300ms and few calls", took, calls)
			}
			for _, id := range []store.ID{waiter.ID, store.NewID()} { // neither waits
				within(t, 0, func() { must(t, q.Wait(t.Context(), "n", id)) })
			}
			mustRelease(t, q, waiter)
			time.Sleep(time.Second)
			wantNothing(t, nodes, q)
		},
		// A client that died has left a vote at the bell. It does not keep others back, because the other nodes are free.
		"a dead vote does not block": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			dead := request("n")
			dead.TTL = time.Hour
			mustAcquire(t, nodes[q.Order("n", 0)].Store, dead)
			time.Sleep(quorum.DefaultTimeout/2 + time.Millisecond)
			for range 20 {
				req := queued("n")
				within(t, 100*time.Millisecond, func() { mustAcquire(t, q, req) })
				mustRelease(t, q, req)
				synctest.Wait()
			}
		},
	}.run(t, 3, 4, 5)
}

// A deaf node cannot push: for example, its user may not subscribe.
type deaf struct{ store.Store }

func (deaf) Wait(context.Context, string, store.ID) error { return errors.New("NOPERM") }

func TestWaiting(t *testing.T) {
	nodeTests{
		"a waiter does not spin if its bell cannot push": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			for _, g := range nodes {
				g.Store = deaf{g.Store}
			}
			c, holder := suites.Client(t, q), request("n")
			holder.TTL = time.Minute
			mustAcquire(t, q, holder)
			var released time.Time
			time.AfterFunc(10*time.Second, func() {
				if n := nodes[0].count() + nodes[1].count() + nodes[2].count(); n > 1000 {
					t.Errorf("a waiter made %d calls in 10 s", n)
				}
				released = time.Now()
				mustRelease(t, q, holder)
			})
			if err := suites.Pair(t.Context(), c, "n"); err != nil || time.Since(released) > 500*time.Millisecond {
				t.Errorf("%v, %v after the release", err, time.Since(released))
			}
		},
		"clients that contend go on while the bell hangs": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			setAll(nodes, nil, slow(time.Millisecond))
			ctx, cancel := context.WithCancel(t.Context())
			var grants atomic.Int32
			var all sync.WaitGroup
			for range 3 {
				c := suites.Client(t, openQuorum(t, named(nodes), quorum.Options{}))
				all.Go(func() {
					for ctx.Err() == nil {
						err := c.Do(ctx, "n", func(context.Context) error {
							grants.Add(1)
							time.Sleep(time.Millisecond)
							return nil
						})
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			rate := func(later time.Duration) int32 { // grants per second
				time.Sleep(later)
				n := grants.Load()
				time.Sleep(time.Second)
				return grants.Load() - n
			}
			bell, answer := nodes[q.Order("n", 0)], make(chan struct{})
			before := rate(2 * time.Second)
			bell.set(hang(answer), nil)
			during := rate(3 * time.Second)
			bell.set(nil, slow(time.Millisecond))
			close(answer)
			after := rate(3 * time.Second)
			cancel()
			all.Wait()
			if during < before/2 || after < before/2 {
				t.Errorf("%d grants/s before the bell hung, %d meanwhile, %d later", before, during, after)
			}
		},
		// Two other requests have the votes of the other nodes, and give them back.
		"a request with the vote of the first node goes on": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			for i := 1; i < 3; i++ {
				s, other := nodes[q.Order("n", i)].Store, request("n")
				mustAcquire(t, s, other)
				time.AfterFunc(5*time.Millisecond, func() { s.Leave(t.Context(), "n", other.ID) })
			}
			within(t, 20*time.Millisecond, func() { mustAcquire(t, q, request("n")) })
		},
		"waiters that are cancelled leave nothing": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			setAll(nodes, nil, slow(time.Millisecond))
			holder := request("n")
			mustAcquire(t, q, holder)
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					req := queued("n")
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*200*time.Microsecond)
					defer cancel()
					for ctx.Err() == nil {
						q.Acquire(ctx, req)
						q.Wait(ctx, "n", req.ID)
					}
					suites.Leave(t, q, req)
				})
			}
			wg.Wait()
			time.Sleep(time.Second)
			mustRelease(t, q, holder)
			time.Sleep(time.Second)
			wantNothing(t, nodes, q)
		},
		"names and leases that are not used are forgotten": func(t *testing.T, nodes []*gate, q *quorum.Store) {
			for i := range 3000 {
				contended, left := fmt.Sprint("contended", i), request(fmt.Sprint("left", i))
				holder, waiter := request(contended), queued(contended)
				mustAcquire(t, q, holder)
				mustRefuse(t, q, waiter)
				q.Leave(t.Context(), contended, waiter.ID)
				mustRelease(t, q, holder)
				left.TTL = 100 * time.Millisecond // nobody releases it
				mustAcquire(t, q, left)
				time.Sleep(50 * time.Millisecond)
			}
			if sessions, names, _ := q.Remembered(); sessions > 1500 || names > sessions+50 {
				t.Errorf("%d identities and %d names are remembered", sessions, names)
			}
		},
	}.run(t, 3)
}

// Clients know the servers under other names, for example because of a proxy. They must queue at the same
// node: otherwise each node gives its vote to a waiter of its own, and nobody gets a majority. A client that
// is refused, and so has no grant to count, learns that servers have restarted.
func TestBellDoesNotDependOnTheNamesOfTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(5)
		nodes := named(all)
		for i := range nodes {
			nodes[i].Name = fmt.Sprint("node", (2*i+1)%5)
		}
		one, two := openQuorum(t, named(all), quorum.Options{}), openQuorum(t, nodes, quorum.Options{})
		same := func(one *quorum.Store, prefix string) {
			t.Helper()
			bells := make(map[int]bool)
			for i := range 100 {
				name := fmt.Sprint(prefix, i)
				bell := one.Order(name, 0)
				bells[bell] = true
				mustAcquire(t, one, request(name))
				for _, q := range []*quorum.Store{one, two} {
					waiter := queued(name)
					mustRefuse(t, q, waiter)
					time.Sleep(time.Second) // the holder gets the votes that the waiter had for a moment
					if _, places := votes(t, []*gate{all[bell].gate}, waiter); places != 1 {
						t.Fatalf("%s: a waiter is not queued at node %d", name, bell)
					}
				}
			}
			if len(bells) != len(all) {
				t.Errorf("%d nodes are bells, want all %d", len(bells), len(all))
			}
		}
		same(one, "before")
		mustAcquire(t, one, request("n"))
		synctest.Wait()
		for i, s := range all {
			s.restart(fmt.Sprint("next run", i), time.Hour)
			s.set(nil, slow(time.Millisecond))
		}
		mustRefuse(t, two, request("n"))
		time.Sleep(time.Second)
		same(openQuorum(t, named(all), quorum.Options{}), "after")
	})
}
