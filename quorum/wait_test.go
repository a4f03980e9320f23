package quorum_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
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
		if err := cmp.Or(err, q.Wait(t.Context(), req.Name, req.ID)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWaiterIsWokenByTheBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{3, 5} {
			nodes, q := gates(t, n, quorum.Options{})
			setAll(nodes, nil, slow(time.Millisecond))
			holder, waiter := request("n"), queued("n")
			mustAcquire(t, q, holder)
			time.Sleep(time.Second)
			time.AfterFunc(200*time.Millisecond, func() {
				if _, places := votes(t, nodes, waiter); places != 1 {
					t.Errorf("the waiter is queued at %d nodes, want the bell", places)
				}
			})
			time.AfterFunc(300*time.Millisecond, func() { mustRelease(t, q, holder) })
			begin, calls := time.Now(), mustWait(t, q, waiter)
			if took := time.Since(begin); took < 300*time.Millisecond || took > 310*time.Millisecond || calls > 5 {
				t.Errorf("granted after %v with %d calls, want 300ms and few calls", took, calls)
			}
			mustRelease(t, q, waiter)
			time.Sleep(time.Second)
			wantNothing(t, nodes, q)
		}
	})
}

func TestWaitReturnsAtOnceForAnIdentityThatDoesNotWait(t *testing.T) {
	withNodes(t, func(t *testing.T, _ []*gate, q *quorum.Store) {
		req := request("n")
		mustAcquire(t, q, req)
		begin := time.Now()
		for _, id := range []store.ID{req.ID, store.NewID()} {
			if err := q.Wait(t.Context(), "n", id); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("Wait took %v", took)
		}
	})
}

func TestWaiterDoesNotSpinIfItsBellCannotPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, q := gates(t, 3, quorum.Options{})
		for _, g := range all {
			g.deaf = true
		}
		c := client(t, q)
		holder := request("n")
		holder.TTL = time.Minute
		mustAcquire(t, q, holder)
		var released time.Time
		time.AfterFunc(10*time.Second, func() {
			if n := all[0].count() + all[1].count() + all[2].count(); n > 1000 {
				t.Errorf("a waiter made %d calls in 10 s", n)
			}
			released = time.Now()
			mustRelease(t, q, holder)
		})
		lease, err := c.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(released); took > 500*time.Millisecond {
			t.Errorf("granted %v after the release", took)
		}
		lease.Unlock(t.Context())
	})
}

func client(t *testing.T, q *quorum.Store) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A client that died has left a vote at the bell. It does not keep others back, because the other nodes
// are free.
func TestDeadVoteAtTheBellDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{3, 4, 5} {
			nodes, q := gates(t, n, quorum.Options{})
			dead := request("n")
			dead.TTL = time.Hour
			mustAcquire(t, nodes[q.Order("n", 0)].Store, dead)
			time.Sleep(quorum.DefaultTimeout/2 + time.Millisecond)
			for i := range 20 {
				req := queued("n")
				begin := time.Now()
				mustAcquire(t, q, req)
				if took := time.Since(begin); took > 100*time.Millisecond {
					t.Errorf("%d nodes, request %d: granted after %v", n, i, took)
				}
				mustRelease(t, q, req)
				synctest.Wait()
			}
		}
	})
}

func TestClientsThatContendGoOnWhileTheBellHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := newGates(3)
		setAll(nodes, nil, slow(time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		var holders, grants atomic.Int32
		var all sync.WaitGroup
		var q *quorum.Store
		for range 3 {
			q = openQuorum(t, named(nodes), quorum.Options{})
			c := client(t, q)
			all.Go(func() {
				for ctx.Err() == nil {
					l, err := c.Lock(ctx, "n")
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						continue
					}
					if grants.Add(1); holders.Add(1) > 1 {
						t.Error("two holders")
					}
					time.Sleep(time.Millisecond)
					holders.Add(-1)
					l.Unlock(context.Background())
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
	})
}

func TestWaitersThatAreCancelledLeaveNothing(t *testing.T) {
	withNodes(t, func(t *testing.T, nodes []*gate, q *quorum.Store) {
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
				if err := q.Leave(t.Context(), "n", req.ID); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		mustRelease(t, q, holder)
		time.Sleep(time.Second)
		wantNothing(t, nodes, q)
	})
}

func TestNamesThatAreNotUsedAreForgotten(t *testing.T) {
	withNodes(t, func(t *testing.T, _ []*gate, q *quorum.Store) {
		contend := func(name string) {
			holder, waiter := request(name), queued(name)
			mustAcquire(t, q, holder)
			mustRefuse(t, q, waiter)
			q.Leave(t.Context(), name, waiter.ID)
			mustRelease(t, q, holder)
		}
		for i := range 1000 {
			contend(fmt.Sprint(i))
		}
		time.Sleep(2 * time.Second)
		contend("last")
		synctest.Wait()
		if sessions, names, _ := q.Remembered(); names != 1 || sessions != 0 {
			t.Errorf("%d names and %d identities are remembered, want 1 and 0", names, sessions)
		}
	})
}

func TestLeasesThatNobodyReleasedAreForgotten(t *testing.T) {
	withNodes(t, func(t *testing.T, _ []*gate, q *quorum.Store) {
		for i := range 3000 {
			req := request(fmt.Sprint(i))
			req.TTL = 100 * time.Millisecond
			mustAcquire(t, q, req)
			time.Sleep(50 * time.Millisecond)
		}
		if sessions, _, _ := q.Remembered(); sessions > 1500 {
			t.Errorf("%d identities are remembered", sessions)
		}
	})
}

// Clients know the servers under other names, for example because of a proxy. They must queue at the same
// node: otherwise each node gives its vote to a waiter of its own, and nobody gets a majority.
func TestBellDoesNotDependOnTheNamesOfTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(5)
		var two [2]*quorum.Store
		for k := range two {
			var nodes []quorum.Node
			for i, s := range all {
				nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", (i*(k+1)+k)%5), Store: s})
			}
			two[k] = openQuorum(t, nodes, quorum.Options{})
		}
		bells := make(map[int]bool)
		for i := range 100 {
			name := fmt.Sprint(i)
			holder, waiters := request(name), [2]store.Request{queued(name), queued(name)}
			mustAcquire(t, two[0], holder)
			for k, w := range waiters {
				mustRefuse(t, two[k], w)
			}
			time.Sleep(time.Second) // the holder gets the votes that a waiter had for a moment
			for n, s := range all {
				page, err := s.Store.List(t.Context(), store.Query{Name: name})
				if err != nil || len(page.Locks) != 1 {
					t.Fatal(page, err)
				}
				switch len(page.Locks[0].Waiters) {
				case 0:
				case len(waiters):
					bells[n] = true
				default:
					t.Fatalf("name %s: waiters at several nodes", name)
				}
			}
			for k, w := range waiters {
				two[k].Leave(t.Context(), name, w.ID)
			}
			mustRelease(t, two[0], holder)
		}
		if len(bells) != len(all) {
			t.Errorf("%d nodes are bells, want all %d", len(bells), len(all))
		}
	})
}

// A client that is refused, and so has no grant to count, learns that servers have restarted. Otherwise it
// would queue at other nodes than clients that know it.
func TestRefusedClientLearnsTheNewOrderOfTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := hosts(3)
		holder, client := use(t, all), use(t, all)
		mustAcquire(t, holder, request("n"))
		synctest.Wait()
		for i, s := range all {
			s.restart(fmt.Sprint("next run", i), time.Hour)
			s.set(nil, slow(time.Millisecond))
		}
		mustRefuse(t, client, request("n"))
		time.Sleep(time.Second)
		fresh := use(t, all)
		for i := range 100 {
			if name := fmt.Sprint(i); client.Order(name, 0) != fresh.Order(name, 0) {
				t.Fatalf("name %s: the bell is node %d, for a new client %d", name, client.Order(name, 0), fresh.Order(name, 0))
			}
		}
	})
}
