package sqlitestore_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestConformance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store {
			s, err := store.Open(context.Background(), "sqlite:"+path)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Residue: func(t testing.TB) []string {
			rows, err := sqlitestore.Rows(path)
			if err != nil {
				t.Fatal(err)
			}
			return rows
		},
		TTL:   500 * time.Millisecond,
		Slack: 500 * time.Millisecond,
	})
}
