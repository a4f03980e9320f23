package unanswered

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

func TestAnIdentityStaysForAMinuteAfterItsLastRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		id, other := store.NewID(), store.NewID()
		if s.Has(id) {
			t.Error("an empty set has an identity")
		}
		s.Add(id)
		time.Sleep(Late / 2)
		s.Add(id)
		time.Sleep(Late - time.Second)
		if !s.Has(id) || s.Has(other) {
			t.Errorf("has the identity: %v, and another: %v", s.Has(id), s.Has(other))
		}
		time.Sleep(time.Second)
		if s.Has(id) {
			t.Error("the identity is still there")
		}
	})
}

func TestOldIdentitiesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		for range 10_000 {
			s.Add(store.NewID())
			time.Sleep(Late / 100)
		}
		if n := len(s.until); n > 250 {
			t.Errorf("%d identities, want those of the last two minutes", n)
		}
	})
}
