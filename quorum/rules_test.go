package quorum_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

var done = store.Keep{State: store.Done, For: time.Hour}

func TestKeepSurvivesTheLossOfAMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, n := range []int{3, 5} {
			nodes, q := gates(t, n, quorum.Options{})
			req := request("n")
			nodes[n-1].set(down, nil) // it has no vote
			mustAcquire(t, q, req)
			nodes[n-1].set(nil, nil)
			if err := q.Release(t.Context(), "n", req.ID, done); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for i := range (n - 1) / 2 {
				nodes[i].Break(t.Context(), "n", req.ID)
			}
			time.Sleep(2 * time.Second)
			if r := mustRefuse(t, q, request("n")); len(r.Holders) != 1 || r.Holders[0].State != store.Done {
				t.Errorf("%d nodes: %+v, want a refusal by the closure", n, r)
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
				mustAcquire(t, nodes[0].Store, request("n"))
			}
			setAll(nodes[2:], func(context.Context, string) error { time.Sleep(time.Millisecond); return errDown }, nil)
			req := request("n")
			if a, err := q.Acquire(t.Context(), req); err == nil {
				t.Fatalf("granted %v, want an error", a.Granted())
			}
			synctest.Wait()
			if n, _ := votes(t, nodes[1:2], req); (n > 0) == contended {
				t.Errorf("contended %v: %d votes", contended, n)
			}
		}
	})
}

func TestListingAndRefusalShowWhatTheMajorityHas(t *testing.T) {
	withNodes(t, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		req := request("n")
		for i, floor := range []int64{10, 20, 15} { // the lease has token 16: see the rule Above
			page, err := q.List(t.Context(), store.Query{Name: "n"})
			if listed := len(page.Locks) > 0; err != nil || listed != (i == 2) {
				t.Errorf("%d nodes have the grant: %+v, %v", i, page, err)
			}
			req.Floor = floor
			mustAcquire(t, nodes[i].Store, req)
		}
		if r := mustRefuse(t, q, request("n")); len(r.Holders) != 1 || r.Holders[0].Token != 16 {
			t.Errorf("%+v, want a refusal by the holder with token 16", r)
		}
		for _, want := range []store.State{store.Held, store.Done} {
			page, err := q.List(t.Context(), store.Query{Name: "n"})
			if err != nil || len(page.Locks) != 1 || page.Locks[0].Holders[0].Token != 16 || page.Locks[0].Holders[0].State != want {
				t.Errorf("%+v, %v, want the holder with token 16, %v", page, err, want)
			}
			for _, g := range nodes[1:] { // the first node does not hear of the closure
				g.Store.Release(t.Context(), "n", req.ID, done)
			}
		}
	})
}

// A brief is a node that grants only a quarter of the requested TTL.
type brief struct{ *memstore.Store }

func (b *brief) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	req.TTL /= 4
	return b.Store.Acquire(ctx, req)
}

func (b *brief) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	grants = slices.Clone(grants)
	for i := range grants {
		grants[i].TTL /= 4
	}
	return b.Store.Renew(ctx, grants)
}

func TestLeaseIsValidNoLongerThanItsNodesGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openQuorum(t, named([]*brief{{memstore.New()}, {memstore.New()}, {memstore.New()}}), quorum.Options{})
		req := request("n")
		if a := mustAcquire(t, q, req); a.TTL > req.TTL/4 {
			t.Errorf("valid for %v, the nodes granted %v", a.TTL, req.TTL/4)
		}
		if out := mustRenew(t, q, req); out.TTL > req.TTL/4 {
			t.Errorf("renewed for %v, the nodes granted %v", out.TTL, req.TTL/4)
		}
	})
}
