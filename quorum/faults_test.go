package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

var errDown = errors.New("down")

func down(context.Context, string) error { return errDown }

// A fresh lease has the votes of a bare majority. If a node loses one of them, the next renewal
// asks the other nodes. Until then the remaining votes exclude other requests.
func TestFreshLeaseThatLosesAVoteIsRepairedByTheOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{3, 5} {
			nodes, q := gates(t, n, quorum.Options{})
			req := request("n")
			mustAcquire(t, q, req)
			faulty := nodes[q.Order("n", 1)]
			faulty.Store.Leave(t.Context(), "n", req.ID)
			faulty.set(down, nil) // only nodes without a fault answer
			refused := func() {
				other := request("n")
				if a, err := q.Acquire(t.Context(), other); err == nil && a.Granted() {
					t.Errorf("%d nodes: granted beside a lease that is valid", n)
				}
				q.Leave(t.Context(), "n", other.ID)
				synctest.Wait()
			}
			renew := func() store.Status {
				out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: req.ID, TTL: time.Minute, Mode: store.Exclusive}})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				return out[0].Status
			}
			refused()
			if s := renew(); s != store.Unknown {
				t.Errorf("%d nodes: status %d, want Unknown: the lease has no majority", n, s)
			}
			refused()
			if s := renew(); s != store.Extended {
				t.Errorf("%d nodes: status %d, want Extended: the other nodes have voted", n, s)
			}
			faulty.set(nil, nil)
			if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
				t.Error(err)
			}
			mustAcquire(t, q, request("n"))
		}
	})
}

func TestLeaseThatIsOverIsNotRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := request("n")
		a := mustAcquire(t, q, req)
		for _, g := range nodes {
			g.set(down, nil)
		}
		time.Sleep(a.TTL)
		nodes[q.Order("n", 2)].set(nil, nil) // it was not asked before
		renewal := []store.Renewal{{Name: "n", ID: req.ID, TTL: time.Minute, Mode: store.Exclusive}}
		if out, err := q.Renew(t.Context(), renewal); err != nil || out[0].Status != store.Unknown {
			t.Errorf("%v, %v, want Unknown", out, err)
		}
		synctest.Wait()
		if n := len(holders(t, nodes[q.Order("n", 2)], "n")); n != 0 {
			t.Error("a node voted for a lease that is over")
		}
	})
}

// A Leave that was not sent because the node hung is sent when the node answers again. It must
// not end a vote that the same identity got in the meantime.
func TestLeaveThatIsSentLaterDoesNotEndAVoteThatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		other := outvote(t, nodes, q)
		slow := nodes[q.Order("n", 1)]
		slow.set(lose("Acquire", "Leave", "Release", "Renew"), nil)
		req := request("n")
		if a, err := q.Acquire(t.Context(), req); err != nil || a.Granted() {
			t.Fatalf("granted %v, %v", a.Granted(), err)
		}
		time.Sleep(200 * time.Millisecond)
		for i := range 200 { // so many that the node is skipped when the vote should be given back
			mustAcquire(t, q, request(fmt.Sprint("other", i)))
		}
		time.Sleep(time.Second)
		for _, g := range nodes {
			g.Store.Leave(t.Context(), "n", other.ID)
		}
		slow.set(nil, nil)
		nodes[q.Order("n", 0)].set(down, nil)
		a, err := q.Acquire(t.Context(), req)
		synctest.Wait()
		votes := 0
		for _, g := range nodes {
			votes += len(holders(t, g, "n"))
		}
		if err == nil && a.Granted() && votes < 2 {
			t.Errorf("granted, and %d nodes have the vote", votes)
		}
	})
}

func TestKeepIsRepeatedAtANodeThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, held := range []time.Duration{0, 20 * time.Millisecond} {
			nodes, q := gates(t, 3, quorum.Options{})
			req := request("n")
			mustAcquire(t, q, req)
			time.Sleep(held)
			keep := store.Keep{State: store.Done, For: time.Hour}
			for i := 1; i < 3; i++ {
				nodes[q.Order("n", i)].set(down, nil)
			}
			if err := q.Release(t.Context(), "n", req.ID, keep); err == nil {
				t.Fatal("released without a majority")
			}
			for _, g := range nodes {
				g.set(nil, nil)
			}
			mustAcquire(t, q, request("another"))
			time.Sleep(20 * time.Millisecond) // all nodes have answered again
			err := q.Release(t.Context(), "n", req.ID, keep)
			if err != nil && !errors.Is(err, store.ErrNotHeld) { // some nodes are closed already
				t.Error(err)
			}
			page, err := q.List(t.Context(), store.Query{Name: "n"})
			if err != nil || len(page.Locks) != 1 || page.Locks[0].Holders[0].State != store.Done {
				t.Errorf("held for %v: %v, %v, want the closure", held, page, err)
			}
		}
	})
}

func TestKeepOfAFreshLeaseSurvivesTheLossOfAMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{3, 5} {
			nodes, q := gates(t, n, quorum.Options{})
			req := request("n")
			mustAcquire(t, q, req)
			if err := q.Release(t.Context(), "n", req.ID, store.Keep{State: store.Done, For: time.Hour}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for i := range (n - 1) / 2 {
				nodes[q.Order("n", i)].Store.Break(t.Context(), "n", req.ID)
			}
			if a, err := q.Acquire(t.Context(), request("n")); err != nil || a.Granted() {
				t.Errorf("%d nodes: granted %v, %v: the closure is forgotten", n, err == nil && a.Granted(), err)
			}
		}
	})
}

func TestKeepOfAFreshLeaseSucceedsWhileAMinorityIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := request("n")
		mustAcquire(t, q, req)
		nodes[q.Order("n", 1)].set(down, nil)
		if err := q.Release(t.Context(), "n", req.ID, store.Keep{State: store.Done, For: time.Hour}); err != nil {
			t.Error(err)
		}
	})
}

func TestRenewalDoesNotCountAVoteThatALateLeaveMayEnd(t *testing.T) {
	for _, batch := range []int{1, 2} {
		t.Run(fmt.Sprint(batch, " renewals"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{})
				req := taint(t, nodes, q)
				first := nodes[q.Order("n", 0)]
				mustAcquire(t, q, req)
				time.Sleep(20 * time.Millisecond) // all nodes have voted
				renewals := make([]store.Renewal, batch)
				for i := range renewals {
					renewals[i] = store.Renewal{Name: fmt.Sprint("n", i), ID: req.ID, TTL: time.Minute, Mode: store.Exclusive}
				}
				renewals[0].Name = "n"
				status := func() store.Status {
					out, err := q.Renew(t.Context(), renewals)
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					return out[0].Status
				}
				if s := status(); s != store.Extended {
					t.Errorf("status %d with all nodes, want Extended", s)
				}
				first.set(down, nil)
				if s := status(); s != store.Unknown {
					t.Errorf("status %d, want Unknown: a late Leave would leave the lease one vote", s)
				}
				first.set(nil, nil)
				for range 25 { // more than ten minutes
					time.Sleep(time.Minute / 2)
					status()
				}
				first.set(down, nil)
				if s := status(); s != store.Extended {
					t.Errorf("status %d after a time in which the Leave would have come, want Extended", s)
				}
			})
		})
	}
}

// A lease that is held for some time has the votes of all nodes. So if a node loses its vote and
// still answers, no other lease can be granted.
func TestLeaseThatIsHeldGetsTheVotesOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{3, 5} {
			for lost := range n {
				nodes, q := gates(t, n, quorum.Options{})
				req := request("n")
				mustAcquire(t, q, req)
				time.Sleep(20 * time.Millisecond)
				for i, g := range nodes {
					if len(holders(t, g, "n")) != 1 {
						t.Errorf("%d nodes: node %d has no vote", n, i)
					}
				}
				nodes[lost].Store.Leave(t.Context(), "n", req.ID) // as if its clock had jumped
				if a, err := q.Acquire(t.Context(), request("n")); err != nil || a.Granted() {
					t.Errorf("%d nodes, node %d has lost its vote: granted %v, %v", n, lost, err == nil && a.Granted(), err)
				}
			}
		}
	})
}

func TestLeaseThatWasBrokenGetsNoFurtherVotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{})
		req := request("n")
		mustAcquire(t, q, req)
		for _, g := range nodes { // as another client does
			g.Store.Break(t.Context(), "n", req.ID)
		}
		time.Sleep(time.Second)
		for i, g := range nodes {
			if len(holders(t, g, "n")) > 0 {
				t.Errorf("node %d has voted for a lease that was broken", i)
			}
		}
	})
}

func TestLeaseThatIsReleasedSoonHasTheVotesOfAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 5, quorum.Options{})
		req := request("n")
		mustAcquire(t, q, req)
		if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		calls := 0
		for _, g := range nodes {
			calls += g.count()
		}
		if calls != 6 {
			t.Errorf("%d calls to nodes, want 6", calls)
		}
	})
}

func TestLeaseThatIsHeldOverCloseHasTheVotesOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []quorum.Node
		for i := range 3 {
			url := fmt.Sprint("memory:held-over-close-", i)
			defer openMemory(t, url).Close() // so that locks outlive the quorum
			nodes = append(nodes, quorum.Node{Name: url, Store: openMemory(t, url)})
		}
		q := openQuorum(t, nodes, quorum.Options{})
		mustAcquire(t, q, request("n"))
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			s := openMemory(t, n.Name)
			page, err := s.List(context.Background(), store.Query{Name: "n"})
			s.Close()
			if err != nil || len(page.Locks) != 1 {
				t.Errorf("%s: %v, %v, want the vote", n.Name, page, err)
			}
		}
	})
}

// The bell may push a grant that lasts for a short time. If the other nodes take longer than
// that, the request is repeated at all nodes.
func TestGrantWhoseTTLIsOverBeforeAllHaveAnsweredIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Timeout: 5 * time.Second})
		req := request("n")
		req.TTL = time.Second
		first := true
		nodes[q.Order("n", 1)].set(nil, func(context.Context, string) error {
			if first {
				first = false
				time.Sleep(1500 * time.Millisecond)
			}
			return nil
		})
		nodes[q.Order("n", 2)].set(down, nil)
		begin := time.Now()
		a := mustAcquire(t, q, req)
		if took := time.Since(begin); took < 1500*time.Millisecond || a.TTL < req.TTL/2 {
			t.Errorf("granted for %v after %v", a.TTL, took)
		}
		if b, err := q.Acquire(t.Context(), request("n")); err == nil && b.Granted() {
			t.Error("granted twice")
		}
	})
}

// Releases that a node did not get are repeated. Otherwise votes that two nodes keep for different
// locks would close the name until their TTLs are over, although all nodes answer.
func TestReleaseThatANodeDidNotGetIsRepeated(t *testing.T) {
	for _, leave := range []bool{false, true} {
		t.Run(fmt.Sprint("leave=", leave), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
				for i := range 2 {
					req := request("n")
					mustAcquire(t, q, req)
					time.Sleep(20 * time.Millisecond)
					nodes[i].set(down, nil)
					var err error
					if leave {
						err = q.Leave(t.Context(), "n", req.ID)
					} else {
						err = q.Release(t.Context(), "n", req.ID, store.Keep{})
					}
					if err != nil {
						t.Fatal(err)
					}
					nodes[i].set(nil, nil)
				}
				time.Sleep(2 * time.Second)
				mustAcquire(t, q, request("n"))
				time.Sleep(20 * time.Millisecond) // it gets the votes of all nodes
				for i := range nodes {
					if n := len(holders(t, nodes[i], "n")); n != 1 {
						t.Errorf("node %d has %d holders", i, n)
					}
				}
			})
		})
	}
}

// A node that is down for a long time does not collect releases without bounds, and Close does not
// wait for it.
func TestReleasesThatANodeDoesNotGetAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
		nodes[1].set(down, nil)
		for i := range 600 {
			req := request(fmt.Sprint(i))
			mustAcquire(t, q, req)
			if err := q.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		before := nodes[1].count()
		time.Sleep(10 * time.Second)
		if n := nodes[1].count() - before; n > 1500 {
			t.Errorf("a node that is down got %d calls in 10 s", n)
		}
		begin := time.Now()
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 600*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
	})
}

// A renewal whose context ends while one lease is undecided has extended the others.
func TestRenewalReturnsWhatItKnowsWhenItsContextEnds(t *testing.T) {
	for _, tokens := range []int{0, 1} {
		t.Run(fmt.Sprint("tokens=", tokens), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
				var renewals []store.Renewal
				for i := range 3 {
					req := request(fmt.Sprint("n", i))
					mustAcquire(t, q, req)
					renewals = append(renewals, store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: store.Exclusive, Tokens: tokens})
				}
				time.Sleep(time.Second)
				nodes[0].Store.Leave(t.Context(), "n1", renewals[1].ID)
				nodes[2].set(lose("Renew"), nil)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				defer cancel()
				out, err := q.Renew(ctx, renewals)
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range []store.Status{store.Extended, store.Unknown, store.Extended} {
					if out[i].Status != want || want == store.Extended && out[i].TTL <= 0 {
						t.Errorf("lease %d: %+v, want status %d", i, out[i], want)
					}
				}
			})
		})
	}
}

func TestCloseTakesAtMostTwoSecondsIfTheNodesHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Timeout: 2 * time.Second, Report: func(string, error) {}})
		mustAcquire(t, q, request("n"))
		for _, g := range nodes {
			g.set(lose("Acquire", "Renew", "Leave"), nil)
		}
		begin := time.Now()
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}

// A request asks a node that refused it again and again, until its deadline. That the last of these
// calls is in flight by then is not a failure of the node.
func TestRequestThatIsRefusedUntilItsDeadlineIsNotAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(map[string]bool)
		var mu sync.Mutex
		nodes, q := gates(t, 3, quorum.Options{Report: func(node string, err error) {
			mu.Lock()
			defer mu.Unlock()
			failed[node] = failed[node] || err != nil
		}})
		slow := nodes[q.Order("n", 1)]
		if a, err := slow.Store.Acquire(t.Context(), request("n")); err != nil || !a.Granted() {
			t.Fatal(a, err)
		}
		nodes[q.Order("n", 2)].set(down, nil)
		calls := 0
		slow.set(func(context.Context, string) error {
			if calls++; calls > 1 {
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		}, nil)
		a, err := q.Acquire(t.Context(), request("n"))
		if err != nil || a.Granted() {
			t.Errorf("granted %v, %v, want a refusal", err == nil && a.Granted(), err)
		}
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		if node := q.Names("n")[1]; failed[node] {
			t.Errorf("%s was reported as failing", node)
		}
	})
}

// The request for a further vote of a lease waits until a node that hangs is given up. The lease has
// been released by then, so nothing is sent, and the node does not count as healthy.
func TestRequestThatIsNotSentDoesNotMakeANodeHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Report: func(string, error) {}})
		nodes[q.Order("n", 1)].set(lose("Acquire", "Renew", "Release", "Leave"), nil)
		req := request("n")
		mustAcquire(t, q, req)
		time.Sleep(100 * time.Millisecond)
		if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		begin := time.Now()
		mustAcquire(t, q, request("n"))
		if took := time.Since(begin); took > 10*time.Millisecond {
			t.Errorf("took %v: it has waited for a node that hangs", took)
		}
	})
}

// noFailures returns options that turn the test red if a node is reported as failing.
func noFailures(t *testing.T) quorum.Options {
	return quorum.Options{Report: func(node string, err error) {
		if err != nil {
			t.Errorf("%s is reported: %v", node, err)
		}
	}}
}

// As above, with a node that is slow but answers in time. It is not to blame.
func TestRequestThatIsNotSentDoesNotMakeANodeFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, noFailures(t))
		nodes[q.Order("n", 1)].set(nil, after(200*time.Millisecond))
		req := request("n")
		mustAcquire(t, q, req)
		time.Sleep(50 * time.Millisecond) // the further vote is requested
		if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
	})
}

// Two nodes have to agree on a token. One of them answers the first message late, so that there is
// little time for the second one.
func TestCallThatIsSentShortlyBeforeTheDeadlineDoesNotMakeANodeFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, noFailures(t))
		at := func(i int) *gate { return nodes[q.Order("n", i)] }
		high := request("n")
		high.Floor = time.Now().UnixMicro() + 10_000
		for _, i := range []int{1, 2} {
			if a, err := at(i).Store.Acquire(t.Context(), high); err != nil || !a.Granted() {
				t.Fatal(a, err)
			}
		}
		at(1).Store.Leave(t.Context(), "n", high.ID) // and node 2 refuses the request
		at(1).set(nil, func(_ context.Context, call string) error {
			if call == "Acquire" {
				time.Sleep(450 * time.Millisecond)
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		})
		begin := time.Now()
		if a, err := q.Acquire(t.Context(), request("n")); err == nil && a.Granted() {
			t.Errorf("granted after %v, want no agreement on a token in time", time.Since(begin))
		}
		time.Sleep(2 * time.Second)
	})
}
