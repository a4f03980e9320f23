package storetest

import (
	"time"
)

// G2, the store's part: a grant lasts for its granted TTL, neither shorter nor much longer. The
// core computes the deadline of the lease from the same TTL.
var lossTests = []test{
	{name: "a grant lasts at least for its TTL", run: func(s *suite) {
		one, two := s.open2()
		for _, ttl := range []time.Duration{s.ttl, s.ttl*5/2 + 1} { // the second shows rounding
			if s.caps.CheckTTL(ttl) != nil {
				continue
			}
			name := s.name()
			a := one.exclusive(name)
			a.req.TTL = ttl
			start := time.Now()
			a.granted()
			two.exclusive(name).freedAfter(start, a.ans.TTL)
		}
	}},
	{name: "a grant can be renewed any number of times", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).short().granted()
		for range 12 {
			time.Sleep(s.ttl / 4)
			a.extended(nil)
			two.exclusive(name).refused()
		}
	}},
}
