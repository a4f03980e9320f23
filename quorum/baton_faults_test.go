package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

func queued(name string) store.Request {
	r := request(name)
	r.Queue = true
	return r
}

func mustRefuse(t *testing.T, q *quorum.Store, req store.Request) {
	t.Helper()
	a, err := q.Acquire(t.Context(), req)
	if err != nil || a.Granted() {
		t.Fatalf("Acquire: %+v, %v, want refusal", a, err)
	}
}

// crowd lets a name count as contended.
func crowd(t *testing.T, q *quorum.Store) {
	t.Helper()
	z := queued("n")
	mustRefuse(t, q, z)
	if err := q.Leave(t.Context(), "n", z.ID); err != nil {
		t.Fatal(err)
	}
}

// chain lets a pass its votes on to b, which has not asked since. C waits behind them if it has a name.
func chain(t *testing.T, q *quorum.Store, a, b, c store.Request) store.Answer {
	t.Helper()
	h := request("n")
	mustAcquire(t, q, h)
	crowd(t, q)
	mustRefuse(t, q, a)
	mustRefuse(t, q, b)
	if c.Name != "" {
		mustRefuse(t, q, c)
	}
	if err := q.Release(t.Context(), "n", h.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	ans := mustAcquire(t, q, a)
	synctest.Wait() // all nodes have answered
	before := q.Passes()
	if err := q.Release(t.Context(), "n", a.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	if q.Passes() != before+1 {
		t.Fatal("not passed")
	}
	return ans
}

// another opens a client of its own on the same nodes.
func another(t *testing.T, nodes []*gate, wrap func(*gate) store.Store) *quorum.Store {
	t.Helper()
	var own []quorum.Node
	for i, g := range nodes {
		own = append(own, quorum.Node{Name: fmt.Sprint("node", i), Store: wrap(&gate{Store: g.Store})})
	}
	q := openQuorum(t, own, quorum.Options{})
	t.Cleanup(func() { q.Close() })
	return q
}

func plain(g *gate) store.Store { return g }

// Nodes may grant a shorter TTL than they were asked for. Such votes are not passed on, because the note
// does not say so.
func TestVotesWithAShorterTTLAreNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []quorum.Node
		for i := range 3 {
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: &brief{memstore.New()}})
		}
		q := openQuorum(t, nodes, quorum.Options{})
		t.Cleanup(func() { q.Close() })
		h, a, b := request("n"), queued("n"), queued("n")
		mustAcquire(t, q, h)
		crowd(t, q)
		mustRefuse(t, q, a)
		mustRefuse(t, q, b)
		for _, id := range []store.ID{h.ID, a.ID} {
			if id == a.ID {
				mustAcquire(t, q, a)
			}
			if err := q.Release(t.Context(), "n", id, store.Keep{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := q.Passes(); n != 0 {
			t.Errorf("votes were passed on %d times", n)
		}
		mustAcquire(t, q, b)
	})
}

func TestVotesThatWerePassedOnAreNotUsedBelowAFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := gates(t, 3, quorum.Options{})
		a, b := queued("n"), queued("n")
		b.Floor = 1 << 40
		chain(t, q, a, b, store.Request{})
		if got := mustAcquire(t, q, b); got.Token <= b.Floor {
			t.Errorf("token %d, want above %d", got.Token, b.Floor)
		}
	})
}

func TestClientWithALongTTLDoesNotGetTheVotesOfAShortOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := gates(t, 3, quorum.Options{})
		a, b := queued("n"), queued("n")
		a.TTL = 100 * time.Millisecond
		h := request("n")
		mustAcquire(t, q, h)
		crowd(t, q)
		mustRefuse(t, q, a)
		mustRefuse(t, q, b)
		time.Sleep(35 * time.Millisecond)
		q.Release(t.Context(), "n", h.ID, store.Keep{})
		mustAcquire(t, q, a)
		time.Sleep(8 * time.Millisecond)
		q.Release(t.Context(), "n", a.ID, store.Keep{})
		time.Sleep(20 * time.Millisecond)
		got := mustAcquire(t, q, b)
		if got.TTL < time.Second {
			t.Errorf("TTL %v of a request for %v, passes %d", got.TTL, b.TTL, q.Passes())
		}
	})
}

// A client with another list of nodes does not use the votes, and ends them.
func TestClientWithOtherNodesIsNotHeldUpByVotesThatWerePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []*memstore.Store
		for range 6 {
			servers = append(servers, memstore.New())
		}
		open := func(of ...int) *quorum.Store {
			var nodes []quorum.Node
			for _, i := range of {
				nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: &gate{Store: servers[i]}})
			}
			return openQuorum(t, nodes, quorum.Options{})
		}
		q, p := open(0, 1, 2, 3, 4), open(0, 1, 2, 3, 5)
		t.Cleanup(func() { q.Close(); p.Close() })
		name := ""
		for i := 0; ; i++ {
			if name = fmt.Sprint("n", i); q.Order(name, 0) < 4 {
				break
			}
		}
		h, z, a, b := request(name), queued(name), queued(name), queued(name)
		mustAcquire(t, q, h)
		mustRefuse(t, q, z)
		mustRefuse(t, p, b)
		q.Leave(t.Context(), name, z.ID)
		p.Leave(t.Context(), name, b.ID)
		b = queued(name)
		mustRefuse(t, q, a)
		mustRefuse(t, p, b)
		q.Release(t.Context(), name, h.ID, store.Keep{})
		mustAcquire(t, q, a)
		if err := q.Release(t.Context(), name, a.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for {
			got, err := p.Acquire(t.Context(), b)
			if err == nil && got.Granted() {
				break
			}
			if err == nil {
				ctx, cancel := context.WithTimeout(t.Context(), got.Refusal.Again)
				p.Wait(ctx, name, b.ID)
				cancel()
			}
		}
		if time.Since(begin) > 100*time.Millisecond {
			t.Errorf("granted after %v", time.Since(begin))
		}
	})
}

// The replies arrive in another order each time.
func TestAnotherHandleReleasesALeaseThatCouldBePassedOn(t *testing.T) {
	for range 30 {
		synctest.Test(t, func(t *testing.T) {
			nodes, q := gates(t, 5, quorum.Options{})
			a, b, c := queued("n"), queued("n"), queued("n")
			chain(t, q, a, b, c)
			mustAcquire(t, q, b)
			p := another(t, nodes, plain)
			if err := p.Release(t.Context(), "n", b.ID, store.Keep{}); err != nil {
				t.Error(err)
			}
			begin := time.Now()
			for time.Since(begin) < time.Minute {
				if got, err := q.Acquire(t.Context(), c); err == nil && got.Granted() {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("the next waiter got the name after %v", took)
			}
		})
	}
}

// A deafTo is a node that does not answer some calls.
type deafTo struct {
	*gate
	calls []string
}

func (d *deafTo) List(ctx context.Context, q store.Query) (store.Page, error) {
	if slices.Contains(d.calls, "List") {
		return store.Page{}, errDown
	}
	return d.gate.List(ctx, q)
}

func (d *deafTo) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if slices.Contains(d.calls, "Release") {
		return errDown
	}
	return d.gate.Release(ctx, name, id, keep)
}

// Only the bell knows whether the lease was passed on. If it does not answer, the outcome is unknown.
func TestAnotherHandleDoesNotKnowWhetherALeaseIsHeldIfTheBellIsDown(t *testing.T) {
	for _, calls := range [][]string{{"List"}, {"Release"}, {"List", "Release"}} {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
				a, b, c := queued("n"), queued("n"), queued("n")
				chain(t, q, a, b, c)
				mustAcquire(t, q, b)
				i := -1
				p := another(t, nodes, func(g *gate) store.Store {
					if i++; i == q.Order("n", 0) {
						return &deafTo{g, calls}
					}
					return g
				})
				if err := p.Release(t.Context(), "n", b.ID, store.Keep{}); err == nil || errors.Is(err, store.ErrNotHeld) {
					t.Errorf("%v, want that the bell did not answer", err)
				}
			})
		})
	}
}

// A request that has a vote of one node, and no lease, is ended. The votes that the holder could pass on
// stay.
func TestEndOfARequestDoesNotEndTheVotesOfTheHolder(t *testing.T) {
	for how, end := range map[string]func(s *quorum.Store, id store.ID) error{
		"Leave": func(s *quorum.Store, id store.ID) error { return s.Leave(context.Background(), "n", id) },
		"Break": func(s *quorum.Store, id store.ID) error { return s.Break(context.Background(), "n", id) },
		"Release": func(s *quorum.Store, id store.ID) error {
			return s.Release(context.Background(), "n", id, store.Keep{})
		},
	} {
		for _, same := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, same client %v", how, same), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					nodes, q := gates(t, 5, quorum.Options{})
					a, b, c := queued("n"), queued("n"), queued("n")
					chain(t, q, a, b, c)
					node := nodes[q.Order("n", 4)]
					node.Store.Leave(t.Context(), "n", holders(t, node, "n")[0]) // it lost its data
					candidate := request("n")
					if answer, err := node.Store.Acquire(t.Context(), candidate); err != nil || !answer.Granted() {
						t.Fatalf("%+v, %v", answer, err)
					}
					mustAcquire(t, q, b)
					by := q
					if !same {
						by = another(t, nodes, plain)
					}
					end(by, candidate.ID) // it may not know whose votes the others are
					synctest.Wait()
					votes := 0
					for _, g := range nodes {
						votes += len(holders(t, g, "n"))
					}
					if votes < 3 {
						t.Errorf("the holder has %d votes", votes)
					}
				})
			})
		}
	}
}

// The calls that give the votes to the identity of the lease fail at first. A renewal repeats them.
func TestVotesGetTheIdentityOfTheLeaseAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{})
		a, b := queued("n"), queued("n")
		chain(t, q, a, b, store.Request{})
		begin := time.Now()
		got := mustAcquire(t, q, b)
		for _, g := range nodes {
			g.set(func(context.Context, string) error { return errDown }, nil)
		}
		time.Sleep(300 * time.Millisecond)
		for _, g := range nodes {
			g.set(nil, nil)
		}
		until := begin.Add(got.TTL)
		for time.Now().Before(until) {
			out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: b.ID, TTL: b.TTL, Mode: store.Exclusive}})
			if err == nil && out[0].Status == store.Extended {
				return
			}
			if err == nil && out[0].Status == store.Gone {
				t.Fatalf("gone after %v", time.Since(begin))
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("TTL %v: the lease was lost after %v, because all nodes were down for the first 300 ms", b.TTL, time.Since(begin))
	})
}

// A lateBreak is a node that ends votes that are passed on after 20 ms.
type lateBreak struct {
	*gate
	of store.ID
}

func (l *lateBreak) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if id != l.of {
		time.Sleep(20 * time.Millisecond)
	}
	return l.Store.Release(ctx, name, id, keep)
}

func TestBreakEndsALeaseThatIsGettingItsVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{})
		a, b, c := queued("n"), queued("n"), queued("n")
		chain(t, q, a, b, c)
		mustAcquire(t, q, b)
		p := another(t, nodes, func(g *gate) store.Store { return &lateBreak{g, b.ID} })
		if err := p.Break(t.Context(), "n", b.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		votes := 0
		for _, g := range nodes {
			for _, id := range holders(t, g, "n") {
				if id == b.ID {
					votes++
				}
			}
		}
		out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: b.ID, TTL: b.TTL, Mode: store.Exclusive}})
		if votes >= 3 {
			t.Errorf("a lease that was broken a second ago has %d votes; Renew: %+v %v", votes, out, err)
		}
	})
}

func TestConflictOfTokensIsResolvedForVotesThatCanBePassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{})
		for i := range nodes { // other names have moved the counters apart
			k := q.Order("n", i)
			r := request(fmt.Sprint("other", i))
			r.Floor = []int64{1000, 2000, 3000, 4000, 5000}[i]
			if _, err := nodes[k].Store.Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		h, a, b := request("n"), queued("n"), queued("n")
		mustAcquire(t, q, h)
		crowd(t, q)
		mustRefuse(t, q, a)
		mustRefuse(t, q, b)
		for i := range nodes { // and again
			k := q.Order("n", i)
			r := request(fmt.Sprint("more", i))
			r.Floor = []int64{10000, 20000, 30000, 40000, 50000}[i]
			if _, err := nodes[k].Store.Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.Release(t.Context(), "n", h.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		ans, err := q.Acquire(t.Context(), a)
		if err != nil || !ans.Granted() {
			t.Errorf("the only candidate was not granted after %v: %+v %v", time.Since(begin), ans, err)
		}
	})
}

func TestCloseKeepsALeaseWhoseVotesCouldBePassedOn(t *testing.T) {
	for _, wait := range []time.Duration{0, 5 * time.Millisecond, 10 * time.Millisecond, 11 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			nodes, _ := gates(t, 5, quorum.Options{})
			q := another(t, nodes, func(g *gate) store.Store { return &unclosed{g} })
			a, b := queued("n"), queued("n")
			chain(t, q, a, b, store.Request{})
			mustAcquire(t, q, b)
			time.Sleep(wait)
			q.Close()
			own := 0
			for _, g := range nodes {
				for _, id := range holders(t, g, "n") {
					if id == b.ID {
						own++
					}
				}
			}
			if own != 5 {
				t.Errorf("%v: %d votes of its own after Close", wait, own)
			}
		})
	}
}

// An unclosed is a node that stays open.
type unclosed struct{ *gate }

func (unclosed) Close() error { return nil }

// Two calls of Acquire for one identity, at the same time, share its votes. The second one must not end
// the votes that the first one requests.
func TestConcurrentRequestsOfOneIdentityDoNotEndItsVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		h, a, b := request("n"), queued("n"), queued("n")
		mustAcquire(t, q, h)
		crowd(t, q)
		mustRefuse(t, q, a)
		mustRefuse(t, q, b)
		if err := q.Release(t.Context(), "n", h.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		for _, g := range nodes {
			g.set(nil, func(_ context.Context, call string) error {
				if call == "Acquire" {
					time.Sleep(2 * time.Millisecond)
				}
				return nil
			})
		}
		answers := make(chan store.Answer, 2)
		for i := range 2 {
			go func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond) // when the first one asks the other nodes
				answer, err := q.Acquire(t.Context(), a)
				if err != nil {
					t.Error(err)
				}
				answers <- answer
			}()
		}
		for range 2 {
			if answer := <-answers; !answer.Granted() {
				t.Errorf("%+v, want grant", answer)
			}
			synctest.Wait()
			votes := 0
			for _, g := range nodes {
				votes += len(holders(t, g, "n"))
			}
			if votes < 2 {
				t.Errorf("the lease has %d votes", votes)
			}
		}
		p := another(t, nodes, plain)
		if answer, err := p.Acquire(t.Context(), request("n")); err != nil || answer.Granted() {
			t.Errorf("another client: %+v, %v, want refusal", answer, err)
		}
	})
}
