//go:build !race

package storetest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// The tests of this file take several times as long with the race detector. The other tests with a
// correct store use it.

func TestBrokenStoresAreCaught(t *testing.T) {
	for _, v := range variants {
		if len(v.caught) == 0 {
			continue // Compare finds it
		}
		t.Run(v.bug, func(t *testing.T) {
			t.Parallel()
			failed, out, err := child(t.Context(), v.bug, v.caught...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, name := range v.caught {
				if !slices.Contains(failed, storetest.LogName(name)) {
					t.Errorf("not caught by %q; failed: %q\n%s", name, failed, out)
				}
			}
		})
	}
}

func TestCompareFindsBrokenStores(t *testing.T) {
	for _, v := range variants {
		t.Run(v.bug, func(t *testing.T) {
			t.Parallel()
			failed, out, err := child(t.Context(), v.bug, compare)
			found := len(failed) > 0 && strings.Contains(out, "of seed")
			if found != (v.unseen == "") {
				t.Errorf("found: %v, %v\n%s", found, err, out)
			}
		})
	}
}

// The model declares each feature alone, and all features except one, so that no test can rely on
// a feature that it does not declare.
func TestModelPasses(t *testing.T) {
	sets := []store.Features{allFeatures, 0}
	for f := store.Features(1); f <= allFeatures; f <<= 1 {
		sets = append(sets, f, allFeatures&^f)
	}
	for _, features := range sets {
		t.Run("with "+features.String(), func(t *testing.T) { storetest.Run(t, inBubble("", features)) })
	}
}
