package storetest_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestModelCompares(t *testing.T) {
	for features, sequences := range map[store.Features]int{allFeatures: 1000, 0: 200, store.FeatureQueue | store.FeatureShared: 200} {
		t.Run("with "+features.String(), func(t *testing.T) {
			storetest.Compare(t, inBubble("", features), storetest.CompareOptions{Sequences: sequences})
		})
	}
}
