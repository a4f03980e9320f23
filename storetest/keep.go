package storetest

import (
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// keepTests test releases that keep the name closed for a time.
var keepTests = []test{
	{name: "a kept record lasts exactly for its time, independent of the grant's TTL", needs: store.FeatureKeep, run: func(s *suite) {
		one, two := s.open2()
		for _, state := range []store.State{store.Done, store.Cooling} {
			name := s.name()
			a := one.exclusive(name).short().granted()
			start, span := time.Now(), 2*s.ttl
			a.keep(store.Keep{State: state, For: span})
			two.exclusive(name).freedAfter(start, span)
		}
	}},
}
