package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A lease gets the vote of the fourth node, and a renewal counts it. The fifth node does not answer,
// and one of the three nodes that voted at first has restarted without its data. The vote is not
// given back because of that one node: another client would have the votes of the other three.
func TestVoteOfAValidLeaseIsNotGivenBackIfANodeRestarted(t *testing.T) {
	for restarted := range 3 {
		t.Run(fmt.Sprint("node ", restarted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 5, quorum.Options{Report: func(string, error) {}})
				at := func(i int) *gate { return nodes[q.Order("n", i)] }
				at(4).set(lose("Acquire", "Renew", "Release", "Leave"), nil)
				req := request("n")
				mustAcquire(t, q, req)            // by nodes 0, 1 and 2
				time.Sleep(20 * time.Millisecond) // the others are asked, and node 3 has voted
				at(restarted).Store.Leave(t.Context(), "n", req.ID)
				begin := time.Now()
				out := mustRenew(t, q, store.Renewal{Name: "n", ID: req.ID, TTL: req.TTL, Mode: store.Exclusive})
				time.Sleep(quorum.DefaultTimeout - 5*time.Millisecond) // the repair has ended, the renewal has not
				other, votes := request("n"), 0
				for i := range nodes {
					if a, err := at(i).Store.Acquire(t.Context(), other); err == nil && a.Granted() {
						votes++
					}
				}
				if votes >= 3 {
					t.Errorf("another client has %d votes, and the lease is valid for %v", votes, time.Until(begin.Add(out.TTL)))
				}
			})
		})
	}
}

// A node has restarted, and its memory is full. After a renewal it is asked for its vote for each
// lease. As long as it does not vote, the other nodes get no further calls.
func TestRepairWithoutAVoteNeedsNoOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
		var renewals []store.Renewal
		for i := range 100 {
			req := request(fmt.Sprint(i))
			mustAcquire(t, q, req)
			renewals = append(renewals, store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: store.Exclusive})
		}
		time.Sleep(time.Second)
		for _, r := range renewals {
			nodes[0].Store.Leave(t.Context(), r.Name, r.ID)
		}
		renew := func() (calls [3]int) {
			for i, n := range nodes {
				calls[i] = -n.count()
			}
			if _, err := q.Renew(t.Context(), renewals); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			for i, n := range nodes {
				calls[i] += n.count()
			}
			return calls
		}
		nodes[0].set(func(_ context.Context, call string) error {
			if call == "Acquire" {
				return errors.New("full")
			}
			return nil
		}, nil)
		if calls := renew(); calls != [3]int{101, 1, 1} {
			t.Errorf("calls %v while the node is full, want 101, 1 and 1", calls)
		}
		nodes[0].set(nil, nil)
		calls := renew()
		if calls[0] != 101 || calls[1]+calls[2] != 102 || min(calls[1], calls[2]) < 25 {
			t.Errorf("calls %v when the node votes, want 101, and 102 that the other nodes share", calls)
		}
		if calls := renew(); calls != [3]int{1, 1, 1} {
			t.Errorf("calls %v when all nodes have voted, want one each", calls)
		}
	})
}

// A renewal of an identity that waits says that there is no lease. The identity keeps its place.
func TestRenewalOfAWaiterKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		mustAcquire(t, q, request("n"))
		waiter := queued("n")
		mustRefuse(t, q, waiter)
		out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: waiter.ID, TTL: waiter.TTL, Mode: store.Exclusive}})
		if err != nil || out[0].Status != store.Gone {
			t.Fatalf("Renew: %+v, %v, want that it is gone", out, err)
		}
		synctest.Wait()
		waiters := 0
		for _, g := range nodes {
			page, err := g.Store.List(t.Context(), store.Query{Name: "n"})
			if err != nil {
				t.Fatal(err)
			}
			for _, lock := range page.Locks {
				waiters += len(lock.Waiters)
			}
		}
		if waiters == 0 {
			t.Error("no node has the waiter in its queue")
		}
	})
}
