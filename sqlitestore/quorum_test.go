package sqlitestore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// A quorum over three files is of no use, since they are on one host. It shows that a quorum
// relies on nothing but the contract of its nodes.
func TestQuorumOfThreeSQLiteFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%d.db", i)) }
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store {
			var nodes []quorum.Node
			for i := range 3 {
				s, err := store.Open(context.Background(), "sqlite:"+path(i))
				if err != nil {
					t.Fatal(err)
				}
				nodes = append(nodes, quorum.Node{Name: path(i), Store: s})
			}
			q, err := quorum.New(context.Background(), nodes, quorum.Options{Timeout: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return settled{q, nodes}
		},
		Residue: func(t testing.TB) (all []string) {
			for i := range 3 {
				rows, err := sqlitestore.Rows(path(i))
				if err != nil {
					t.Fatal(err)
				}
				for _, row := range rows {
					all = append(all, fmt.Sprintf("%d: %s", i, row))
				}
			}
			return all
		},
		TTL:      500 * time.Millisecond,
		Slack:    500 * time.Millisecond,
		Parallel: 2,
	})
}

// settled is a quorum whose Break waits until all nodes have voted. A Break through another handle
// can overtake a vote that comes late, which then lasts for its TTL.
type settled struct {
	*quorum.Store
	nodes []quorum.Node
}

func (s settled) Break(ctx context.Context, name string, id store.ID) error {
	for range 100 {
		voted := 0
		for _, n := range s.nodes {
			page, err := n.Store.List(ctx, store.Query{Name: name})
			if err == nil && len(page.Locks) == 1 && len(page.Locks[0].Holders) == 1 && page.Locks[0].Holders[0].ID == id {
				voted++
			}
		}
		if voted == 0 || voted == len(s.nodes) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	return s.Store.Break(ctx, name, id)
}
