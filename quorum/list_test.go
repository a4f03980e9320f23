package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A silent node does not answer listings while hangs is set.
type silent struct {
	*memstore.Store
	hangs bool
}

func (s *silent) List(ctx context.Context, q store.Query) (store.Page, error) {
	if s.hangs {
		<-ctx.Done()
		return store.Page{}, ctx.Err()
	}
	return s.Store.List(ctx, q)
}

func silentNodes(t *testing.T, names int) ([]*silent, *quorum.Store) {
	nodes := make([]*silent, 3)
	all := make([]quorum.Node, 3)
	for i := range nodes {
		nodes[i] = &silent{Store: memstore.New()}
		all[i] = quorum.Node{Name: fmt.Sprint("node", i), Store: nodes[i]}
	}
	q := openQuorum(t, all, quorum.Options{Report: func(string, error) {}})
	t.Cleanup(func() { q.Close() })
	for i := range names {
		mustAcquire(t, q, request(fmt.Sprint("name", i)))
	}
	time.Sleep(20 * time.Millisecond)
	return nodes, q
}

// listed returns how often each name was listed, and the duration of the longest call.
func listed(t *testing.T, q *quorum.Store, limit int) (seen map[string]int, longest time.Duration) {
	t.Helper()
	seen = make(map[string]int)
	for query := (store.Query{Limit: limit}); ; {
		begin := time.Now()
		page, err := q.List(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(begin))
		for _, l := range page.Locks {
			seen[l.Name]++
		}
		if query.Cursor = page.Next; query.Cursor == "" {
			return seen, longest
		}
	}
}

func TestListWaitsOnceForANodeThatHangs(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint("node ", i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, q := silentNodes(t, 200)
				nodes[i].hangs = true
				seen, longest := listed(t, q, 0)
				if len(seen) != 200 {
					t.Errorf("%d names of 200", len(seen))
				}
				if longest > quorum.DefaultTimeout {
					t.Errorf("a page took %v", longest)
				}
			})
		})
	}
}

func TestListingThatHasEndedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := silentNodes(t, 100)
		for range 5 {
			if seen, _ := listed(t, q, 10); len(seen) != 100 {
				t.Errorf("%d names of 100", len(seen))
			}
		}
		if n := q.Listed(); n > 0 {
			t.Errorf("%d names of listings that have ended are remembered", n)
		}
	})
}

// A caller of List that has little time is not a reason to distrust the nodes.
func TestListWithAShortDeadlineDoesNotMakeNodesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make([]quorum.Node, 3)
		for i := range nodes {
			nodes[i] = quorum.Node{Name: fmt.Sprint("node", i), Store: &silent{Store: memstore.New(), hangs: true}}
		}
		q := openQuorum(t, nodes, quorum.Options{Report: func(node string, err error) { t.Errorf("%s: %v", node, err) }})
		defer q.Close()
		time.Sleep(time.Second) // no node has answered lately
		for _, query := range []store.Query{{}, {Name: "n"}} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if _, err := q.List(ctx, query); err != context.DeadlineExceeded {
				t.Errorf("%v, want %v", err, context.DeadlineExceeded)
			}
		}
	})
}
