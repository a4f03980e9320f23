package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
				const names = 60
				nodes, q := gates(t, 3, quorum.Options{})
				var all []store.Request
				for i := range names {
					all = append(all, request(fmt.Sprint("name", i)))
					mustAcquire(t, q, all[i])
				}
				time.Sleep(time.Second)
				for i, req := range all {
					if i%4 < 3 {
						nodes[i%4].Store.Leave(t.Context(), req.Name, req.ID)
					}
				}
				for faulty := range 3 {
					nodes[faulty].set(fault, nil)
					seen := make(map[string]int)
					for query := (store.Query{Prefix: "name", Limit: limit}); ; {
						begin := time.Now()
						page, err := q.List(t.Context(), query)
						if err != nil {
							t.Fatal(err)
						}
						if took := time.Since(begin); name != "hangs" && took > 100*time.Millisecond {
							t.Errorf("a page took %v", took)
						}
						for _, l := range page.Locks {
							seen[l.Name]++
							if len(l.Holders) != 1 {
								t.Errorf("%s has %d holders", l.Name, len(l.Holders))
							}
						}
						if query.Cursor = page.Next; query.Cursor == "" {
							break
						}
					}
					nodes[faulty].set(nil, nil)
					time.Sleep(time.Second)
					q.List(t.Context(), store.Query{Name: "any"}) // it answers again
					for i := range names {
						if n := seen[fmt.Sprint("name", i)]; n != 1 {
							t.Errorf("fault at node %d: name %d is listed %d times", faulty, i, n)
						}
					}
				}
			})
		}
	}
}

func TestListFailsIfAMajorityDoesNotAnswer(t *testing.T) {
	withNodes(t, func(t *testing.T, nodes []*gate, q *quorum.Store) {
		mustAcquire(t, q, request("n"))
		queries := []store.Query{{}, {Name: "n"}, {Prefix: "other"}} // all names are looked up, one, and none
		setAll(nodes[1:], down, nil)
		for _, query := range queries {
			var failed *quorum.NodesError
			if page, err := q.List(t.Context(), query); !errors.As(err, &failed) || len(failed.Nodes) != 2 || failed.Confirmed != 1 {
				t.Errorf("%+v, %v, want an error of two nodes, and that one confirmed", page, err)
			}
		}
		nodes[0].set(down, nil)
		for _, query := range queries {
			if page, err := q.List(t.Context(), query); err == nil || !strings.Contains(err.Error(), ": 0 of 3 nodes confirmed, 2 are needed: node0: ") {
				t.Errorf("%+v, %v, want that no node confirmed", page, err)
			}
		}
		for _, cursor := range []string{"x", "::::", "-1:0:0:"} {
			if _, err := q.List(t.Context(), store.Query{Cursor: cursor}); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("cursor %q: %v, want ErrInvalid", cursor, err)
			}
		}
	})
}

// A caller of List that has little time is not a reason to distrust the nodes.
func TestListWithAShortDeadlineDoesNotMakeNodesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, q := gates(t, 3, quorum.Options{Report: func(node string, err error) { t.Errorf("%s: %v", node, err) }})
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
