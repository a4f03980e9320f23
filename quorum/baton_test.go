package quorum_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A passing is a quorum with a contended name. The first of its waiters has got the votes of the
// previous holder, and the others wait.
type passing struct {
	t       *testing.T
	nodes   []*gate
	q       *quorum.Store
	bell    *gate
	others  []*gate
	waiters []store.Request
}

// withPassing calls f with such a quorum. The holder is waiters[0], and has the given answer.
func withPassing(t *testing.T, f func(t *testing.T, p *passing, answer store.Answer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &passing{t: t}
		p.nodes, p.q = gates(t, 5, quorum.Options{Report: func(string, error) {}})
		for i := range p.nodes {
			if n := p.nodes[p.q.Order("n", i)]; i == 0 {
				p.bell = n
			} else {
				p.others = append(p.others, n)
			}
		}
		first := request("n")
		mustAcquire(t, p.q, first)
		crowd(t, p.q)
		for range 4 {
			req := request("n")
			req.Queue, req.Owner = true, "owner of a waiter"
			if a, err := p.q.Acquire(t.Context(), req); err != nil || a.Granted() {
				t.Fatal(a, err)
			}
			p.waiters = append(p.waiters, req)
		}
		time.Sleep(20 * time.Millisecond)
		p.release(first)
		a := p.next() // it asks the other nodes for votes that it can pass on
		time.Sleep(5 * time.Millisecond)
		p.release(p.waiters[0])
		p.waiters = p.waiters[1:]
		b := p.next()
		if p.q.Passes() != 1 || b.Token != a.Token+1 {
			t.Fatalf("%d passed on, token %d after %d", p.q.Passes(), b.Token, a.Token)
		}
		// The wait of 25 ms and the 5 ms that the previous holder has spent count. The
		// validity is rounded up a little.
		if most := 1972 * time.Millisecond; b.TTL > most || b.TTL < most-2*time.Millisecond {
			t.Errorf("the lease that was passed on is valid for %v, want %v", b.TTL, most)
		}
		synctest.Wait()
		f(t, p, b)
	})
}

func (p *passing) release(req store.Request) {
	p.t.Helper()
	if err := p.q.Release(p.t.Context(), "n", req.ID, store.Keep{}); err != nil {
		p.t.Fatal(err)
	}
}

// next lets the first waiter take its turn.
func (p *passing) next() store.Answer {
	p.t.Helper()
	if err := p.q.Wait(p.t.Context(), "n", p.waiters[0].ID); err != nil {
		p.t.Fatal(err)
	}
	return mustAcquire(p.t, p.q, p.waiters[0])
}

// wantVotes checks that all nodes have a vote for a request, with a token.
func (p *passing) wantVotes(id store.ID, token int64, left time.Duration) {
	p.t.Helper()
	for i, n := range append([]*gate{p.bell}, p.others...) {
		page, err := n.List(p.t.Context(), store.Query{Name: "n"})
		if err != nil || len(page.Locks) != 1 || len(page.Locks[0].Holders) != 1 {
			p.t.Fatalf("node %d has %+v, %v", i, page, err)
		}
		h := page.Locks[0].Holders[0]
		if h.ID != id || h.Owner != "owner of a waiter" || h.Left < left || i > 0 && h.Token != token {
			p.t.Errorf("node %d has the vote %+v, want %v with token %d for %v", i, h, id, token, left)
		}
	}
}

// shared returns the identity of the votes of all nodes but the bell. It is zero if there are none.
func (p *passing) shared() (id store.ID) {
	p.t.Helper()
	for i, n := range p.others {
		var at store.ID
		if ids := holders(p.t, n, "n"); len(ids) > 0 {
			at = ids[0]
		}
		if i == 0 {
			id = at
		} else if at != id {
			p.t.Fatalf("node %d has a vote for %v, another one for %v", i, at, id)
		}
	}
	return id
}

func TestVotesThatWerePassedOnGetTheIdentityOfALeaseThatIsHeld(t *testing.T) {
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		id := p.waiters[0].ID
		if p.shared() == id {
			t.Error("the votes have the identity of the lease at once")
		}
		time.Sleep(15 * time.Millisecond)
		p.wantVotes(id, a.Token, 29*time.Second)
		r := store.Renewal{Name: "n", ID: id, TTL: 30 * time.Second, Mode: store.Exclusive}
		mustRenew(t, p.q, r)
		time.Sleep(25 * time.Second)
		mustRenew(t, p.q, r)
		p.release(p.waiters[0])
		if !p.shared().IsZero() {
			t.Error("votes are left")
		}
	})
}

func TestVotesThatWerePassedOnGetTheIdentityOfALeaseThatIsRenewedOrRequestedAgain(t *testing.T) {
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		mustRenew(t, p.q, store.Renewal{Name: "n", ID: p.waiters[0].ID, TTL: 30 * time.Second, Mode: store.Exclusive})
		p.wantVotes(p.waiters[0].ID, a.Token, 29*time.Second)
	})
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		for range 3 {
			b := mustAcquire(t, p.q, p.waiters[0])
			synctest.Wait()
			if b.Token != a.Token || b.Tokens != 1 || b.TTL < 29*time.Second {
				t.Errorf("%+v, want the lease of %+v", b, a)
			}
			p.wantVotes(p.waiters[0].ID, a.Token, 29*time.Second)
		}
	})
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		if err := p.q.Release(t.Context(), "n", p.waiters[0].ID, store.Keep{State: store.Cooling, For: time.Minute}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.wantVotes(p.waiters[0].ID, a.Token, 59*time.Second)
	})
}

// A repeated request must not end the votes of its lease at nodes that have not confirmed that they
// gave them to its identity.
func TestRepeatedRequestKeepsVotesThatWerePassedOn(t *testing.T) {
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		shared := p.shared()
		for _, n := range p.others {
			n.set(func(_ context.Context, call string) error {
				if call == "Rename" {
					return errors.New("lost")
				}
				return nil
			}, nil)
		}
		p.q.Acquire(t.Context(), p.waiters[0])
		synctest.Wait()
		if p.shared() != shared {
			t.Error("the votes of a lease that is valid were given back")
		}
		for _, n := range p.others {
			n.set(nil, nil)
		}
		p.q.Release(t.Context(), "n", p.waiters[0].ID, store.Keep{})
		synctest.Wait()
		if id := p.shared(); id == shared {
			t.Error("the votes are left after the release")
		}
	})
}

func TestBreakEndsVotesThatCouldBePassedOn(t *testing.T) {
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		other := openQuorum(t, func() (nodes []quorum.Node) {
			for i, n := range p.nodes {
				nodes = append(nodes, quorum.Node{Name: "node" + string(rune('0'+i)), Store: n})
			}
			return nodes
		}(), quorum.Options{})
		t.Cleanup(func() { other.Close() })
		page, err := other.List(t.Context(), store.Query{Name: "n"})
		if err != nil || len(page.Locks) != 1 || len(page.Locks[0].Holders) != 1 || page.Locks[0].Holders[0].ID != p.waiters[0].ID {
			t.Fatalf("%+v, %v, want the holder", page, err)
		}
		if err := other.Break(t.Context(), "n", p.shared()); !errors.Is(err, store.ErrNotHeld) {
			t.Errorf("Break of the votes without the bell: %v", err)
		}
		if err := other.Break(t.Context(), "n", p.waiters[0].ID); err != nil {
			t.Fatal(err)
		}
		if !p.shared().IsZero() || len(holders(t, p.bell, "n")) > 0 {
			t.Error("votes are left")
		}
		// The holder cannot pass on what it has lost.
		if err := p.q.Release(t.Context(), "n", p.waiters[0].ID, store.Keep{}); !errors.Is(err, store.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
	})
}

// The reply of the bell is lost. The next holder may have the votes.
func TestHolderDoesNotTouchVotesThatItMayHavePassedOn(t *testing.T) {
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		shared, holder := p.shared(), p.waiters[0]
		p.bell.set(nil, lose("Pass"))
		if err := p.q.Release(t.Context(), "n", holder.ID, store.Keep{}); err == nil {
			t.Fatal("released although the bell did not answer")
		}
		p.bell.set(nil, nil)
		p.q.Leave(t.Context(), "n", holder.ID)
		synctest.Wait()
		if p.shared() != shared {
			t.Error("the votes were given back")
		}
		p.waiters = p.waiters[1:]
		if b := p.next(); b.Token != a.Token+1 {
			t.Errorf("token %d after %d", b.Token, a.Token)
		}
	})
}

func TestWaiterThatLeavesEndsVotesThatWerePassedOnToIt(t *testing.T) {
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		p.release(p.waiters[0])
		if p.shared().IsZero() {
			t.Fatal("the votes were not passed on")
		}
		if err := p.q.Leave(t.Context(), "n", p.waiters[1].ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !p.shared().IsZero() {
			t.Error("votes are left")
		}
		p.waiters = p.waiters[2:]
		if b := p.next(); b.Token <= a.Token {
			t.Errorf("token %d after %d", b.Token, a.Token)
		}
	})
}

// Votes that are too old are given back, and the waiter asks the nodes itself.
func TestVotesThatAreTooOldAreNotUsed(t *testing.T) {
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		shared := p.shared()
		p.release(p.waiters[0])
		p.waiters = p.waiters[1:]
		time.Sleep(1700 * time.Millisecond)
		if b := p.next(); b.Token <= a.Token || b.TTL < time.Second {
			t.Errorf("%+v after %+v", b, a)
		}
		synctest.Wait()
		if id := p.shared(); id == shared || id.IsZero() {
			t.Error("the old votes are used")
		}
	})
}

func TestVotesAreNotPassedOnUnlessAllNodesGaveThem(t *testing.T) {
	withPassing(t, func(t *testing.T, p *passing, a store.Answer) {
		passes := p.q.Passes()
		p.waiters = slices.Clone(p.waiters)
		p.others[3].set(down, nil)
		p.q.Acquire(t.Context(), request("other")) // it finds out
		synctest.Wait()
		r := request("another")
		mustAcquire(t, p.q, r)
		p.q.Release(t.Context(), "n", p.waiters[0].ID, store.Keep{})
		if p.q.Passes() != passes {
			t.Error("votes were passed on while a node is down")
		}
	})
}
