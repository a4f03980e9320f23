package suites

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/store"
)

// Newer is the name of the record in a test of UnknownFormat, and NewerID is its identity.
const Newer, NewerID = "newer", "0123456789abcdef0123456789abcdef"

// UnknownFormat tests that a store refuses every call for the name Newer, whose record has a format
// that the store does not know, and that it leaves the record as it is. Dump returns the contents of
// the server that belong to Newer.
func UnknownFormat(t *testing.T, s store.Store, dump func() []string) {
	t.Helper()
	ctx := Limited(t)
	id, err := store.ParseID(NewerID)
	before := dump()
	if err != nil || len(before) == 0 {
		t.Fatalf("the record does not exist (%v)", err)
	}
	acquire := func(req store.Request) func() error {
		return func() error { _, err := s.Acquire(ctx, req); return err }
	}
	shared, block := Request(Newer), Request(Newer)
	shared.Mode, block.Tokens = store.Shared, 10
	for what, call := range map[string]func() error{
		"Acquire":           acquire(Request(Newer)),
		"Acquire, queued":   acquire(Queued(Newer)),
		"Acquire, shared":   acquire(shared),
		"Acquire, a block":  acquire(block),
		"Break":             func() error { return s.Break(ctx, Newer, id) },
		"List, by name":     func() error { _, err := s.List(ctx, store.Query{Name: Newer}); return err },
		"List, by a prefix": func() error { _, err := s.List(ctx, store.Query{Prefix: Newer[:2]}); return err },
	} {
		err := call()
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), Newer) || !strings.Contains(err.Error(), "update this program") {
			t.Errorf("%s: %v; want an ErrInvalid that has the name and says what to do", what, err)
		}
	}
	if after := dump(); !slices.Equal(after, before) {
		t.Errorf("the record has changed from %q to %q", before, after)
	}
	other := Request("other")
	Granted(t, s, other)
	Release(t, s, other)
}
