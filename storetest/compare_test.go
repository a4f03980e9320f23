package storetest_test

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestModelCompares(t *testing.T) {
	for _, features := range []store.Features{allFeatures, 0, store.FeatureQueue | store.FeatureShared} {
		t.Run("with "+features.String(), func(t *testing.T) {
			storetest.Compare(t, inBubble("", features), storetest.CompareOptions{})
		})
	}
}

func TestCompareFindsBrokenStores(t *testing.T) {
	for _, v := range variants {
		t.Run(v.bug, func(t *testing.T) {
			t.Parallel()
			failed, out, err := child(t.Context(), nil, envBug+"="+v.bug, envCompare+"=1")
			found := len(failed) > 0 && strings.Contains(out, "of seed")
			if found != (v.unseen == "") {
				t.Errorf("found: %v, %v\n%s", found, err, out)
			}
		})
	}
}
