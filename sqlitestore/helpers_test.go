package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

const patience = suites.Patience

var (
	request, renewal          = suites.Request, suites.Renewal
	granted, refused, release = suites.Granted, suites.Refused, suites.Release
	eventually, extended      = suites.Eventually, suites.AllExtended
)

// open opens a store and closes it at the end of the test.
func open(t testing.TB, path string) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(context.Background(), path)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// newPath returns the path of a file that does not exist yet.
func newPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "locks.db")
}

// newFile opens a store on a file that does not exist yet.
func newFile(t testing.TB) (path string, s *sqlitestore.Store) {
	t.Helper()
	path = newPath(t)
	return path, open(t, path)
}

// take acquires a name that must be free.
func take(t testing.TB, s store.Store, name string) store.Request {
	t.Helper()
	req := request(name)
	granted(t, s, req)
	return req
}

// queue queues a new request for a held name.
func queue(t testing.TB, s store.Store, name string) store.Request {
	t.Helper()
	req := suites.Queued(name)
	refused(t, s, req)
	return req
}

// wantRows expects these rows in a file, including expired ones.
func wantRows(t *testing.T, path string, want ...string) {
	t.Helper()
	rows, err := sqlitestore.Rows(path)
	must(t, err)
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

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
