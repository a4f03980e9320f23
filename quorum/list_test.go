package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// Some names have the votes of two nodes only. The listing of a node fails or hangs, and the node may
// answer questions about one name.
func TestEveryNameIsListedOnce(t *testing.T) {
	faults := map[string]fault{"no fault": nil, "fails": down, "fails for many names": only(down, "List"), "hangs": lose}
	for name, fault := range faults {
		for _, limit := range []int{0, 7, 1} {
			run(t, fmt.Sprintf("%s, pages of %d", name, limit), func(t *testing.T) {
				nodes, q := gates(t, 3, quorum.Options{})
				once := make(map[string]int)
				for i := range 60 {
					req := request(fmt.Sprint("name", i))
					mustAcquire(t, q, req)
					synctest.Wait()
					if once[req.Name] = 1; i%4 < 3 {
						nodes[i%4].Store.Leave(t.Context(), req.Name, req.ID)
					}
				}
				time.Sleep(time.Second)
				for i, faulty := range nodes {
					faulty.set(fault, nil)
					most := 100 * time.Millisecond
					if name == "hangs" {
						most = q.Capabilities().Timeout
					}
					locks, err := listAll(t, q, store.Query{Prefix: "name", Limit: limit}, most)
					must(t, err)
					holders := make(map[string]int)
					for _, l := range locks {
						holders[l.Name] += len(l.Holders)
					}
					if !maps.Equal(holders, once) {
						t.Errorf("fault at node %d: listed %v, want each name once, with one holder", i, holders)
					}
					faulty.set(nil, nil)
					time.Sleep(time.Second)
					q.List(t.Context(), store.Query{Name: "any"}) // it answers again
				}
			})
		}
	}
}

// listAll reads all pages, none of which must take longer than the limit.
func listAll(t *testing.T, q *quorum.Store, query store.Query, limit time.Duration) (locks []store.Lock, err error) {
	t.Helper()
	for {
		var page store.Page
		within(t, limit, func() { page, err = q.List(t.Context(), query) })
		locks = append(locks, page.Locks...)
		if query.Cursor = page.Next; query.Cursor == "" {
			return locks, err
		}
	}
}

func TestListFailsInTimeIfAMajorityDoesNotAnswer(t *testing.T) {
	for n, fault := range map[int]fault{3: down, 15: lose} {
		withGates(t, n, quorum.Options{}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
			mustAcquire(t, q, request("n"))
			setAll(nodes[1:], fault, nil)
			for _, query := range []store.Query{{Prefix: "other"}, {}, {Name: "n"}} {
				silent := n - 1
				if query.Prefix != "" { // no name is looked up, so the nodes are asked one by one
					silent = n/2 + 1
				}
				locks, err := listAll(t, q, query, q.Capabilities().Timeout)
				var failed *quorum.NodesError
				if !errors.As(err, &failed) || len(failed.Nodes) != silent || failed.Confirmed != 1 {
					t.Errorf("%+v, %v, want an error of %d nodes, and that one confirmed", locks, err, silent)
				}
			}
			for _, cursor := range []string{"x", "::::", "-1:0:0:"} {
				if _, err := q.List(t.Context(), store.Query{Cursor: cursor}); !errors.Is(err, store.ErrInvalid) {
					t.Errorf("cursor %q: %v, want ErrInvalid", cursor, err)
				}
			}
		})
	}
}

// A caller of List that has little time is not a reason to distrust the nodes.
func TestListWithAShortDeadlineDoesNotMakeNodesFail(t *testing.T) {
	withGates(t, 3, quorum.Options{Report: func(node string, err error) { t.Errorf("%s: %v", node, err) }}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		setAll(nodes, slow(100*time.Millisecond), nil)
		for _, query := range []store.Query{{}, {Name: "n"}} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := q.List(ctx, query); err != context.DeadlineExceeded {
				t.Errorf("%v, want %v", err, context.DeadlineExceeded)
			}
			cancel()
		}
	})
}

func TestListingAndRefusalShowWhatTheMajorityHas(t *testing.T) {
	withGates(t, 3, quorum.Options{}, func(t *testing.T, nodes []*gate, q *quorum.Store) {
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
