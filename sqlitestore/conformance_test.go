package sqlitestore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// Most tests of the suite wait for a TTL or a heartbeat to end, so some run in parallel. Each
// test has its own file, because SQLite has one writer and would delay the calls of other tests.
func TestConformance(t *testing.T) {
	const parallel = 8
	files := make(chan string, parallel)
	for range parallel {
		path := newPath(t)
		open(t, path).Close() // creates the file
		files <- path
	}
	var inUse sync.Map // maps the name of a test to its file
	path := func(t testing.TB) string {
		path, _ := inUse.Load(t.Name())
		return path.(string)
	}
	storetest.Run(t, storetest.Harness{
		TTL:      2 * time.Second,
		Parallel: parallel,
		Around: func(t *testing.T, test func(t *testing.T)) {
			file := <-files
			defer func() { files <- file }()
			inUse.Store(t.Name(), file)
			test(t)
		},
		Open: func(t testing.TB) store.Store {
			s, err := store.Open(context.Background(), "sqlite:"+path(t))
			must(t, err)
			return s
		},
		Residue: func(t testing.TB) []string {
			rows, err := sqlitestore.Rows(path(t))
			must(t, err)
			return rows
		},
	})
	for range parallel {
		if err := sqlitestore.Intact(<-files); err != nil {
			t.Error(err)
		}
	}
}

func TestCompare(t *testing.T) {
	path := newPath(t)
	storetest.Compare(t, storetest.Harness{
		TTL:  2 * time.Second,
		Open: func(t testing.TB) store.Store { return open(t, path) },
	}, storetest.CompareOptions{})
	if err := sqlitestore.Intact(path); err != nil {
		t.Error(err)
	}
}

// The tests run with a clock that cannot be set back, and with one that can.
func TestExactness(t *testing.T) {
	for _, steady := range []bool{true, false} {
		w := newHost(t)
		w.steady = steady
		suites.Exactness(t, w.open(), w.pass)
		if err := sqlitestore.Intact(w.path); err != nil {
			t.Error(err)
		}
	}
}
