package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A deaf node grants and refuses, but cannot push: for example, its user may not subscribe.
type deaf struct{ *gate }

func (deaf) Wait(context.Context, string, store.ID) error { return errors.New("NOPERM") }

func TestWaiterDoesNotSpinIfItsBellCannotPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gates []*gate
		var nodes []quorum.Node
		for i := range 3 {
			g := &gate{Store: memstore.New()}
			gates = append(gates, g)
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: deaf{g}})
		}
		q := openQuorum(t, nodes, quorum.Options{Report: func(string, error) {}})
		defer q.Close()
		c, err := holdfast.New(q)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held := request("n")
		mustAcquire(t, q, held)
		time.Sleep(time.Second)
		calls := func() (n int) {
			for _, g := range gates {
				n += g.count()
			}
			return n
		}
		before := calls()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "n"); err == nil {
			t.Fatal("granted twice")
		}
		if n := calls() - before; n > 1000 {
			t.Errorf("a waiter made %d calls in 10 s", n)
		}
		// It is granted soon after the release.
		done := make(chan time.Time)
		go func() {
			l, err := c.Lock(t.Context(), "n")
			if err != nil {
				t.Error(err)
			}
			done <- time.Now()
			if err == nil {
				l.Unlock(t.Context())
			}
		}()
		time.Sleep(5 * time.Second)
		released := time.Now()
		if err := q.Release(t.Context(), "n", held.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		if took := (<-done).Sub(released); took > 500*time.Millisecond {
			t.Errorf("granted %v after the release", took)
		}
	})
}

// A lock is released while the bell cannot be reached, which keeps the vote until its TTL is over.
// That does not keep waiters back for so long: the other nodes are free.
func TestVoteThatIsLeftAtTheBellKeepsWaitersBackForAShortTimeOnly(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, n, quorum.Options{Report: func(string, error) {}})
				c, err := holdfast.New(q)
				if err != nil {
					t.Fatal(err)
				}
				bell := nodes[q.Order("n", 0)]
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var traffic sync.WaitGroup
				traffic.Go(func() { // other names are in use, so that the bell is known to answer again
					for ctx.Err() == nil {
						other := request(fmt.Sprint("other", rand.N(100)))
						q.Acquire(ctx, other)
						q.Release(ctx, other.Name, other.ID, store.Keep{})
						time.Sleep(10 * time.Millisecond)
					}
				})
				req := request("n")
				mustAcquire(t, q, req)
				time.Sleep(time.Second)
				waiter := func() (granted chan time.Duration) {
					granted = make(chan time.Duration, 1)
					begin := time.Now()
					go func() {
						l, err := c.Lock(t.Context(), "n")
						granted <- time.Since(begin)
						if err != nil {
							t.Error(err)
							return
						}
						l.Unlock(t.Context())
					}()
					return granted
				}
				first := waiter()
				time.Sleep(100 * time.Millisecond)
				bell.set(down, nil)
				if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				bell.set(nil, nil)
				second := waiter()
				for _, granted := range []chan time.Duration{first, second} {
					if took := <-granted; took > 5*time.Second {
						t.Errorf("granted after %v, and no node but the bell has a vote of another request", took)
					}
				}
				cancel()
				traffic.Wait()
				c.Close()
			})
		})
	}
}

// A node on which other requests are queued grants no further tokens. If its votes are needed and
// its counter is below that of another node, its counter is raised. Asking it for tokens again
// would only move the counters of all nodes ahead of their clocks, where they grant no blocks.
func TestConflictOfTokensWhileOthersAreQueuedEndsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		previous := outvote(t, nodes, q)
		req, behind := request("n"), request("n")
		req.Queue, behind.Queue = true, true
		req.Tokens = 2 // so that it does not ask all nodes at once to pass their votes on
		if a, err := q.Acquire(t.Context(), req); err != nil || a.Granted() {
			t.Fatal(a, err)
		}
		if a, err := at(0).Store.Acquire(t.Context(), behind); err != nil || a.Granted() {
			t.Fatal(a, err)
		}
		synctest.Wait() // the vote of node 1 has been given back
		high := request("n")
		high.Floor = time.Now().UnixMicro() + 10_000
		a, err := at(1).Store.Acquire(t.Context(), high)
		if err != nil || !a.Granted() {
			t.Fatal(a, err)
		}
		at(1).Store.Leave(t.Context(), "n", high.ID)
		at(0).Store.Leave(t.Context(), "n", previous.ID)
		if err := q.Wait(t.Context(), "n", req.ID); err != nil {
			t.Fatal(err)
		}
		b := mustAcquire(t, q, req) // by nodes 0 and 1
		if b.Token <= a.Token || b.Token > a.Token+100 {
			t.Errorf("token %d after %d", b.Token, a.Token)
		}
		// The bell, another node and all nodes, new tokens, higher counters.
		if rounds := q.Rounds(); rounds[5] != 1 {
			t.Errorf("rounds %v, want one request of 5", rounds)
		}
	})
}

// The bell chooses the tokens of a contended name. It must not stay behind the other nodes, because
// then they would not agree to any of its tokens without another round.
func TestCounterOfABellCatchesUp(t *testing.T) {
	for _, crowd := range []bool{true, false} {
		t.Run(fmt.Sprint("crowd=", crowd), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{})
				high := request("n")
				high.Floor = time.Now().UnixMicro() + 10_000
				for _, i := range []int{1, 2} {
					n := nodes[q.Order("n", i)].Store
					if a, err := n.Acquire(t.Context(), high); err != nil || !a.Granted() {
						t.Fatal(a, err)
					}
					n.Leave(t.Context(), "n", high.ID)
				}
				bell := nodes[q.Order("n", 0)]
				var renewals atomic.Int32
				bell.set(func(_ context.Context, call string) error {
					if call == "Renew" {
						renewals.Add(1)
					}
					return nil
				}, nil)
				holder := request("n")
				first := mustAcquire(t, q, holder)
				last := first
				wait := func() store.Request {
					req := request("n")
					req.Queue = true
					if a, err := q.Acquire(t.Context(), req); err != nil || a.Granted() {
						t.Fatal(a, err)
					}
					return req
				}
				const handOffs = 20
				waiters := []store.Request{wait()}
				if crowd {
					waiters = append(waiters, wait())
				}
				for range handOffs {
					next := waiters[0]
					if err := q.Release(t.Context(), "n", holder.ID, store.Keep{}); err != nil {
						t.Fatal(err)
					}
					if err := q.Wait(t.Context(), "n", next.ID); err != nil {
						t.Fatal(err)
					}
					last = mustAcquire(t, q, next)
					synctest.Wait()
					holder = next
					page, err := bell.List(t.Context(), store.Query{Name: "n"})
					if err != nil || page.Locks[0].Holders[0].Left < last.TTL {
						t.Fatalf("the bell has %v, %v, want the vote for at least %v", page, err, last.TTL)
					}
					waiters = append(waiters[1:], wait())
				}
				// The first round asks the bell, and the second one the other nodes, unless their votes
				// were passed on.
				if rounds := q.Rounds(); rounds[1]+rounds[2] < handOffs-2 {
					t.Errorf("rounds %v, want nearly all of %d hand-offs in 2", rounds, handOffs)
				}
				if n := q.Passes(); crowd && n < handOffs-3 || !crowd && n > 0 {
					t.Errorf("the votes were passed on in %d of %d hand-offs", n, handOffs)
				}
				if n := renewals.Load(); n > 5 {
					t.Errorf("%d renewals at the bell", n)
				}
				if last.Token > first.Token+1000 {
					t.Errorf("token %d after %d", last.Token, first.Token)
				}
				q.Release(t.Context(), "n", holder.ID, store.Keep{})
				for _, waiter := range waiters {
					q.Leave(t.Context(), "n", waiter.ID)
				}
				synctest.Wait()
				if n := q.Sessions(); n > 0 {
					t.Errorf("%d identities are not forgotten", n)
				}
			})
		})
	}
}

// Some waiters queue at the second node of the name, because the first one had a free vote when they
// asked, and the others at the first one. One node does not answer, and both groups get half of the
// other votes. The waiters that give way do not take the votes in turns.
func TestWaitersThatQueueAtDifferentNodesDoNotBlockEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := request("n")
		var servers []*gate
		var granted sync.WaitGroup
		// wait starts a waiter that reaches the given node later than the others.
		wait := func(far int) {
			nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
			if servers == nil {
				servers = make([]*gate, 5)
				for i := range servers {
					servers[i] = nodes[q.Order("n", i)]
				}
				for _, i := range []int{1, 2, 4} {
					servers[i].Store.Acquire(t.Context(), held)
				}
			}
			for i := range nodes {
				g := nodes[q.Order("n", i)]
				g.Store = servers[i].Store
				switch i {
				case 3:
					g.set(lose("Acquire", "Renew", "Release", "Leave"), nil)
				case far:
					g.set(func(context.Context, string) error { time.Sleep(time.Millisecond); return nil }, nil)
				}
			}
			c, err := holdfast.New(q)
			if err != nil {
				t.Fatal(err)
			}
			granted.Go(func() {
				defer c.Close()
				l, err := c.Lock(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				l.Unlock(t.Context())
			})
			time.Sleep(3 * time.Second)
		}
		for range 3 {
			wait(2)
		}
		servers[0].Store.Acquire(t.Context(), held)
		wait(4)
		begin := time.Now()
		for _, s := range servers {
			s.Store.Leave(t.Context(), "n", held.ID)
		}
		granted.Wait()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("four waiters were granted after %v", took)
		}
	})
}

// The clock of one node is wrong. The counters of the other nodes do not follow it.
func TestCounterOfABellDoesNotFollowANodeThatIsFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		far := request("n")
		far.Floor = time.Now().UnixMicro() + time.Hour.Microseconds()
		wrong := nodes[q.Order("n", 1)].Store
		if a, err := wrong.Acquire(t.Context(), far); err != nil || !a.Granted() {
			t.Fatal(a, err)
		}
		wrong.Leave(t.Context(), "n", far.ID)
		holder, next, third := request("n"), request("n"), request("n")
		next.Queue, third.Queue = true, true
		mustAcquire(t, q, holder)
		for _, waiter := range []store.Request{next, third} {
			if a, err := q.Acquire(t.Context(), waiter); err != nil || a.Granted() {
				t.Fatal(a, err)
			}
		}
		for _, waiter := range []store.Request{next, third} {
			if err := q.Release(t.Context(), "n", holder.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
			if err := q.Wait(t.Context(), "n", waiter.ID); err != nil {
				t.Fatal(err)
			}
			if a := mustAcquire(t, q, waiter); a.Token > far.Floor {
				t.Errorf("token %d follows the wrong clock", a.Token)
			}
			synctest.Wait()
			holder = waiter
		}
	})
}

// The bell is down. A request that other nodes grant sends it nothing that would raise its counter.
func TestCounterOfABellIsNotRaisedWithoutWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
		bell := nodes[q.Order("n", 0)]
		bell.set(down, nil)
		req := request("n")
		req.Queue = true
		mustAcquire(t, q, req)
		synctest.Wait()
		if n := bell.count(); n != 1 {
			t.Errorf("%d calls at the bell, want one Acquire", n)
		}
	})
}

// Two clients take turns. When one of them is granted the name, the other one is not queued yet, but
// it asks soon. They do not split the votes of the nodes.
func TestTwoClientsThatTakeTurnsNeedTwoRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pairs = 300
		servers, _ := gates(t, 5, quorum.Options{})
		var clients sync.WaitGroup
		var handles []*quorum.Store
		for range 2 {
			nodes, q := gates(t, 5, quorum.Options{})
			handles = append(handles, q)
			for i, n := range nodes {
				n.Store = servers[i].Store
				n.set(func(context.Context, string) error {
					time.Sleep(100*time.Microsecond + rand.N(100*time.Microsecond))
					return nil
				}, nil)
			}
			c, err := holdfast.New(q)
			if err != nil {
				t.Fatal(err)
			}
			clients.Go(func() {
				for range pairs {
					lease, err := c.Lock(t.Context(), "n")
					if err == nil {
						err = lease.Unlock(t.Context())
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		clients.Wait()
		var more uint64
		for _, q := range handles {
			for n, granted := range q.Rounds() {
				if n > 2 { // the first round asks the bell, and the second one the other nodes
					more += granted
				}
			}
		}
		if more > 2*pairs/50 {
			t.Errorf("%d of %d requests needed more than two rounds", more, 2*pairs)
		}
	})
}

func TestNamesThatAreNoLongerContendedAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := gates(t, 3, quorum.Options{})
		refuse := func(name string) {
			mustAcquire(t, q, request(name))
			if a, err := q.Acquire(t.Context(), request(name)); err != nil || a.Granted() {
				t.Fatal(a, err)
			}
		}
		for i := range 3000 {
			refuse(fmt.Sprint(i))
		}
		time.Sleep(2 * time.Second)
		refuse("last")
		if n := q.Crowded(); n != 1 {
			t.Errorf("%d names are remembered as contended, want 1", n)
		}
	})
}
