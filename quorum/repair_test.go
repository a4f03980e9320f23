package quorum_test

import (
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
