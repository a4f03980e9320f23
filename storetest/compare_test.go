package storetest_test

import (
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
