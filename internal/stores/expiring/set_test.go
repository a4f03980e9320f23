package expiring

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

func TestAMemberStaysForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set[store.ID]
		id, other := store.NewID(), store.NewID()
		if s.Has(id) {
			t.Error("an empty set has an identity")
		}
		s.Add(id, Late)
		time.Sleep(Late / 2)
		s.Add(id, Late)
		time.Sleep(Late - time.Second)
		if !s.Has(id) || s.Has(other) {
			t.Errorf("has the identity: %v, and another: %v", s.Has(id), s.Has(other))
		}
		time.Sleep(time.Second)
		if s.Has(id) {
			t.Error("the identity is still there")
		}
		s.Add(other, Late)
		s.Remove(other)
		if s.Has(other) {
			t.Error("the identity was not removed")
		}
	})
}

func TestExpiredMembersAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set[store.ID]
		for range 10_000 {
			s.Add(store.NewID(), Late)
			time.Sleep(Late / 100)
		}
		if n := len(s.until); n > 250 {
			t.Errorf("%d identities, want those of the last two minutes", n)
		}
	})
}
