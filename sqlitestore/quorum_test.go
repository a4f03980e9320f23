//go:build !race

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

// A quorum of three files is of no practical use, because they are on one host. It shows that a
// quorum relies only on the contract of its nodes. SQLite is many times slower with the race
// detector, which other tests of both stores use.
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
			return q
		},
		// The next use of a name at a node, or its sweep, removes expired rows.
		Residue: func(t testing.TB) (all []string) {
			for i := range 3 {
				s, err := sqlitestore.Open(context.Background(), path(i))
				if err != nil {
					t.Fatal(err)
				}
				page, err := s.List(context.Background(), store.Query{Limit: 1000})
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range page.Locks {
					if l.Name == "holdfast:quorum:clients" { // what clients tell each other
						continue
					}
					all = append(all, fmt.Sprintf("node %d: %s", i, l.Name))
				}
				s.Close()
			}
			return all
		},
		// A call needs several transactions in each of three files, each of which has one writer.
		TTL:      3 * time.Second,
		Parallel: 4,
	})
}
