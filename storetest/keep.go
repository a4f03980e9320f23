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
	{name: "a name that is done wakes all its waiters", needs: store.FeatureKeep | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		s.promptly(func() (took, again time.Duration) {
			name := s.name()
			a := one.exclusive(name).granted()
			var last *claim
			var waits []*wait
			for i, c := range []*conn{two, two, one, two} {
				last = c.exclusive(name).queued(i + 1)
				waits = append(waits, last.wait())
			}
			start := time.Now()
			a.keep(store.Keep{State: store.Done, For: s.long})
			for _, w := range waits {
				w.woken()
			}
			return time.Since(start), last.again
		})
	}},
}
