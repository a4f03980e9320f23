package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
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

func TestTTLAboveAFixedRestartDelayIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 10 * time.Second
		nodes, q := serverNodesWith(t, 3, delay, quorum.Options{RestartDelay: delay})
		c, err := holdfast.New(q)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Lock(t.Context(), "n", holdfast.TTL(delay+1)); !errors.Is(err, holdfast.ErrInvalid) {
			t.Fatalf("%v, want ErrInvalid", err)
		}
		if n := nodes[0].count() + nodes[1].count() + nodes[2].count(); n > 0 {
			t.Errorf("%d calls to nodes", n)
		}
		// The clocks of the nodes may be too fast by the drift.
		if _, err := c.TryLock(t.Context(), "n"); err == nil {
			t.Fatal("granted by nodes that have just been up for the delay")
		}
		time.Sleep(delay / 50)
		lease, err := c.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lease.Deadline()); left > delay {
			t.Errorf("the default TTL is %v", left)
		}
		lease.Unlock(t.Context())
	})
}

func TestNodeThatTurnsOutToBeTheServerOfAnotherDoesNotCount(t *testing.T) {
	for _, delay := range []time.Duration{0, -1} {
		t.Run(fmt.Sprint("restart delay ", delay), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := serverNodesWith(t, 3, time.Hour, quorum.Options{RestartDelay: delay})
				time.Sleep(time.Minute)
				nodes[0].set(down, nil)
				nodes[1].restart("run2", time.Hour) // its address leads to node 2 now
				if a, err := q.Acquire(t.Context(), request("n")); err == nil && a.Granted() {
					t.Error("granted by one server that is two nodes")
				}
			})
		})
	}
}

func mustRenew(t *testing.T, q *quorum.Store, r store.Renewal) store.Renewed {
	t.Helper()
	out, err := q.Renew(t.Context(), []store.Renewal{r})
	if err != nil || out[0].Status != store.Extended {
		t.Fatalf("Renew: %+v, %v, want Extended", out, err)
	}
	synctest.Wait()
	return out[0]
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

// The name is not closed if only a minority has the closure.
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
		for _, g := range nodes { // as another handle of the same lease would do
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

// The votes of a failed attempt would block other requests for the name.
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

// nodeVotes acquires grants for an identity at some nodes, in the order of the name, each with
// one of these floors for its token.
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

// A mute is a node that cannot list.
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

// A brief is a node that grants only a quarter of the requested TTL.
type brief struct{ *memstore.Store }

func (b *brief) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	req.TTL /= 4
	return b.Store.Acquire(ctx, req)
}

func (b *brief) AcquireNoted(ctx context.Context, req store.Request) (store.Answer, string, time.Duration, error) {
	req.TTL /= 4
	return b.Store.AcquireNoted(ctx, req)
}

func (b *brief) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	grants = slices.Clone(grants)
	for i := range grants {
		grants[i].TTL /= 4
	}
	return b.Store.Renew(ctx, grants)
}

func TestLeaseIsValidNoLongerThanAnyOfItsNodesGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []quorum.Node
		for i := range 3 {
			nodes = append(nodes, quorum.Node{Name: fmt.Sprint("node", i), Store: &brief{memstore.New()}})
		}
		q := openQuorum(t, nodes, quorum.Options{})
		defer q.Close()
		req := request("n")
		if a := mustAcquire(t, q, req); a.TTL > req.TTL/4 {
			t.Errorf("valid for %v, the nodes granted %v", a.TTL, req.TTL/4)
		}
		for _, tokens := range []int{0, 2} {
			out, err := q.Renew(t.Context(), []store.Renewal{{Name: "n", ID: req.ID, TTL: req.TTL, Mode: req.Mode, Tokens: tokens}})
			if err != nil || out[0].Status != store.Extended || out[0].TTL > req.TTL/4 {
				t.Errorf("%v, %v, the nodes granted %v", out, err, req.TTL/4)
			}
		}
	})
}

func TestNodesKeepAVoteForLongerThanTheLeaseIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		req := request("n")
		a := mustAcquire(t, q, req)
		time.Sleep(a.TTL + a.TTL/100) // as if the clocks of the nodes ran faster by one percent
		voted := 0
		for _, g := range nodes {
			voted += len(holders(t, g, "n"))
		}
		if voted < 2 {
			t.Errorf("%d nodes have the vote", voted)
		}
	})
}

func TestReplyThatComesAfterTheTTLIsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		for _, g := range nodes {
			g.set(nil, func(context.Context, string) error { time.Sleep(300 * time.Millisecond); return nil })
		}
		req := request("n")
		req.TTL = 200 * time.Millisecond
		if a, err := q.Acquire(t.Context(), req); err == nil && a.Granted() {
			t.Errorf("granted for %v, and the replies took 300 ms", a.TTL)
		}
	})
}

// The reply of a node that granted is lost, either at once or after the request was refused.
func TestVoteWhoseReplyWasLostIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []time.Duration{0, 300 * time.Millisecond} {
			nodes, q := gates(t, 3, quorum.Options{})
			outvote(t, nodes, q)
			voter := nodes[q.Order("n", 1)]
			voter.set(nil, func(_ context.Context, call string) error {
				if call != "Acquire" {
					return nil
				}
				time.Sleep(late)
				return errors.New("connection reset")
			})
			if a, err := q.Acquire(t.Context(), request("n")); err != nil || a.Granted() {
				t.Fatalf("granted %v, %v", a.Granted(), err)
			}
			time.Sleep(time.Second)
			if n := len(holders(t, voter, "n")); n != 0 {
				t.Errorf("a reply that was lost after %v: the vote stays", late)
			}
		}
	})
}

func TestVoteOfANodeThatDoesNotCountIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := serverNodes(t, 3, time.Hour)
		time.Sleep(time.Minute)
		young := nodes[q.Order("n", 0)]
		young.restart("new", 0)
		other := request("n")
		for i := 1; i < 3; i++ {
			if a, err := nodes[q.Order("n", i)].Store.Acquire(t.Context(), other); err != nil || !a.Granted() {
				t.Fatal(a, err)
			}
		}
		if a, err := q.Acquire(t.Context(), request("n")); err != nil || a.Granted() {
			t.Fatalf("granted %v, %v", err == nil && a.Granted(), err)
		}
		time.Sleep(time.Second)
		if n := len(holders(t, young.gate, "n")); n != 0 {
			t.Error("the vote of a node that does not count stays")
		}
	})
}

func TestVoteThatComesAfterTheReleaseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		slow := nodes[q.Order("n", 0)]
		slow.set(nil, func(_ context.Context, call string) error {
			if call == "Acquire" {
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		req := request("n")
		mustAcquire(t, q, req)
		if err := q.Release(t.Context(), "n", req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if n := len(holders(t, slow, "n")); n != 0 {
			t.Error("a vote that came late stays after the release")
		}
	})
}

// A request may be granted although the bell refuses it because it still has the vote of a dead
// client.
func TestHolderDoesNotWaitInTheQueueOfTheBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{})
		bell := nodes[q.Order("n", 0)]
		if a, err := bell.Store.Acquire(t.Context(), request("n")); err != nil || !a.Granted() {
			t.Fatal(a, err)
		}
		req := request("n")
		req.Queue = true
		mustAcquire(t, q, req)
		synctest.Wait()
		page, err := bell.List(t.Context(), store.Query{Name: "n"})
		if err != nil || len(page.Locks) != 1 || len(page.Locks[0].Waiters) > 0 {
			t.Errorf("%+v, %v, want no waiters", page, err)
		}
	})
}
