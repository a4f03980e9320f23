package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// patience bounds the wait for events that should happen soon. Only a failing test waits that
// long.
const patience = 30 * time.Second

// open opens a store and closes it at the end of the test.
func open(t testing.TB, path string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// request returns an exclusive request with a new identity and a TTL longer than a test.
func request(name string) store.Request {
	return store.Request{
		Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1,
		TTL: time.Minute, Tokens: 1, Owner: "host/1234/abcdef",
	}
}

// newPath returns the path of a file that does not exist yet.
func newPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "locks.db")
}

// take acquires a name that must be free.
func take(t testing.TB, s store.Store, name string) store.Request {
	t.Helper()
	req := request(name)
	if answer, err := s.Acquire(context.Background(), req); err != nil || !answer.Granted() {
		t.Fatalf("granted %v, error %v", answer.Granted(), err)
	}
	return req
}

func release(t testing.TB, s store.Store, req store.Request) {
	t.Helper()
	if err := s.Release(context.Background(), req.Name, req.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
}

// wantRows expects these rows in a file, including expired ones.
func wantRows(t *testing.T, path string, want ...string) {
	t.Helper()
	rows, err := sqlitestore.Rows(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
}

// pairs takes and releases names in turn.
func pairs(s store.Store, names string, n int) error {
	ctx := context.Background()
	for i := range n {
		req := request(names + strconv.Itoa(i%10))
		answer, err := s.Acquire(ctx, req)
		if err == nil && !answer.Granted() {
			err = errors.New("not granted")
		}
		if err == nil {
			err = s.Release(ctx, req.Name, req.ID, store.Keep{})
		}
		if err != nil {
			return fmt.Errorf("pair %d: %w", i, err)
		}
	}
	return nil
}
