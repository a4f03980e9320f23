package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
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
			l.Unlock(t.Context())
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
