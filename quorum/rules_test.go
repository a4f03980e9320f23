package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

func TestNodeDoesNotCountBeforeTheLargestTTLInUseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := serverNodes(t, 3, time.Minute)
		nodes[0].set(down, nil)
		mustAcquire(t, q, request("a"))
		long := request("b")
		long.TTL = 5 * time.Minute
		if a, err := q.Acquire(t.Context(), long); err == nil && a.Granted() {
			t.Error("granted by nodes that may have forgotten a lease of five minutes")
		}
		time.Sleep(5 * time.Minute)
		mustAcquire(t, q, long)
		mustRenew(t, q, store.Renewal{Name: "b", ID: long.ID, TTL: time.Hour, Mode: store.Exclusive})
		if a, err := q.Acquire(t.Context(), request("c")); err == nil && a.Granted() {
			t.Error("granted by nodes that may have forgotten a lease of an hour")
		}
	})
}

func TestNodeThatTurnsOutToBeTheServerOfAnotherDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := serverNodes(t, 3, time.Hour)
		time.Sleep(time.Minute)
		nodes[0].set(down, nil)
		nodes[1].restart("run2", time.Hour) // its address leads to node 2 now
		if a, err := q.Acquire(t.Context(), request("n")); err == nil && a.Granted() {
			t.Error("granted by one server that is two nodes")
		}
	})
}

func mustRenew(t *testing.T, q *quorum.Store, r store.Renewal) {
	t.Helper()
	out, err := q.Renew(t.Context(), []store.Renewal{r})
	if err != nil || out[0].Status != store.Extended {
		t.Fatalf("Renew: %+v, %v, want Extended", out, err)
	}
	synctest.Wait()
}

func TestNodesAreRepairedAsLongAsALeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := request("n")
		mustAcquire(t, q, req)
		r := store.Renewal{Name: "n", ID: req.ID, TTL: req.TTL, Mode: store.Exclusive}
		for range 10 {
			time.Sleep(req.TTL / 3)
			mustRenew(t, q, r)
		}
		nodes[1].Store.Leave(t.Context(), "n", req.ID)
		mustRenew(t, q, r)
		if len(holders(t, nodes[1], "n")) != 1 {
			t.Error("a lease that was renewed ten times is not repaired")
		}
	})
}

// A closure that a minority has does not keep the name closed.
func TestKeepFailsUnlessAMajorityHasTheClosure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := request("n")
		mustAcquire(t, q, req)
		time.Sleep(20 * time.Millisecond)
		nodes[0].Store.Leave(t.Context(), "n", req.ID)
		nodes[1].set(down, nil)
		if err := q.Release(t.Context(), "n", req.ID, store.Keep{State: store.Done, For: time.Hour}); err == nil {
			t.Error("one node of three has the closure, and the release succeeded")
		}
	})
}

func TestBreakEndsVotesThatAnotherClientAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := request("n")
		mustAcquire(t, q, req)
		for _, g := range nodes { // as another handle of the same lease does
			if a, err := g.Store.Acquire(t.Context(), req); err != nil || !a.Granted() {
				t.Fatal(a, err)
			}
		}
		if err := q.Break(t.Context(), "n", req.ID); err != nil {
			t.Fatal(err)
		}
		for i, g := range nodes {
			if len(holders(t, g, "n")) > 0 {
				t.Errorf("node %d has the vote of a lease that was broken", i)
			}
		}
	})
}

// Votes of an attempt that failed are in the way of others if there are others.
func TestFailedAttemptKeepsItsVotesUnlessTheNameIsContended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, contended := range []bool{true, false} {
			nodes, q := gates(t, 5, quorum.Options{})
			if contended {
				if a, err := nodes[q.Order("n", 0)].Store.Acquire(t.Context(), request("n")); err != nil || !a.Granted() {
					t.Fatal(a, err)
				}
			}
			for i := 2; i < 5; i++ {
				nodes[q.Order("n", i)].set(down, nil)
			}
			req := request("n")
			if a, err := q.Acquire(t.Context(), req); err == nil {
				t.Fatalf("granted %v, want an error", a.Granted())
			}
			synctest.Wait()
			voted := len(holders(t, nodes[q.Order("n", 1)], "n")) > 0
			if voted == contended {
				t.Errorf("contended %v: the vote stays %v", contended, voted)
			}
		}
	})
}

func TestLeasesThatNobodyReleasedAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := gates(t, 3, quorum.Options{})
		for i := range 5000 {
			req := request(fmt.Sprint(i))
			req.TTL = 100 * time.Millisecond
			mustAcquire(t, q, req)
			time.Sleep(50 * time.Millisecond)
		}
		if n := q.Sessions(); n > 2500 {
			t.Errorf("%d identities are remembered, and a hundred leases are not over for long", n)
		}
	})
}

// nodeVotes gives an identity grants at nodes with these floors of their tokens, by the order of a
// name.
func nodeVotes(t *testing.T, q *quorum.Store, nodes []*gate, req store.Request, floors ...int64) {
	t.Helper()
	for i, floor := range floors {
		req.Floor = floor
		if a, err := nodes[q.Order(req.Name, i)].Store.Acquire(t.Context(), req); err != nil || !a.Granted() {
			t.Fatal(a, err)
		}
	}
}

func TestRefusalAndListingShowTheTokenOfTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		nodeVotes(t, q, nodes, request("n"), 10, 20, 15) // the lease has token 16: see the rule Above
		a, err := q.Acquire(t.Context(), request("n"))
		if err != nil || a.Granted() || len(a.Refusal.Holders) != 1 || a.Refusal.Holders[0].Token != 16 {
			t.Errorf("%+v, %v, want a refusal by the holder with token 16", a.Refusal, err)
		}
		page, err := q.List(t.Context(), store.Query{Name: "n"})
		if err != nil || len(page.Locks) != 1 || page.Locks[0].Holders[0].Token != 16 {
			t.Errorf("%+v, %v, want the holder with token 16", page, err)
		}
	})
}

func TestListingShowsNoHolderWithTheVoteOfAMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		nodeVotes(t, q, nodes, request("n"), 1)
		if page, err := q.List(t.Context(), store.Query{Name: "n"}); err != nil || len(page.Locks) > 0 {
			t.Errorf("%+v, %v, want nothing", page, err)
		}
	})
}

func TestListingShowsAClosureThatANodeHasNotHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := request("n")
		nodeVotes(t, q, nodes, req, 1, 1, 1)
		for _, g := range nodes[1:] {
			if err := g.Store.Release(t.Context(), "n", req.ID, store.Keep{State: store.Done, For: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		page, err := q.List(t.Context(), store.Query{Name: "n"})
		if err != nil || len(page.Locks) != 1 || page.Locks[0].Holders[0].State != store.Done {
			t.Errorf("%+v, %v, want the closure", page, err)
		}
	})
}

// A holder is listed if it may have a majority.
func TestListingShowsAHolderWhileANodeThatVotedIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []quorum.Node
		var silent []*mute
		for i := range 3 {
			m := &mute{Store: memstore.New()}
			silent = append(silent, m)
			all = append(all, quorum.Node{Name: fmt.Sprint("node", i), Store: m})
		}
		q := openQuorum(t, all, quorum.Options{})
		defer q.Close()
		req := request("n")
		mustAcquire(t, q, req)
		silent[q.Order("n", 0)].mute = true
		page, err := q.List(t.Context(), store.Query{Name: "n"})
		if err != nil || len(page.Locks) != 1 {
			t.Errorf("%+v, %v, want the holder", page, err)
		}
	})
}

// A mute is a node that does not list.
type mute struct {
	*memstore.Store
	mute bool
}

func (m *mute) List(ctx context.Context, q store.Query) (store.Page, error) {
	if m.mute {
		return store.Page{}, errors.New("mute")
	}
	return m.Store.List(ctx, q)
}
