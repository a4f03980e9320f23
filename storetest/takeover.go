package storetest

import (
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Calls of one client may use an identity one after the other. If a call gives up, the core lets
// the next call take over its place in the queue. Each call has its own TTL.
var takeoverTests = []test{
	{name: "a lease never outlives what the store keeps for it", needs: store.FeatureQueue | store.FeatureList, run: func(s *suite) {
		one, two := s.open2()
		for round := range 5 {
			name := s.name()
			a := one.exclusive(name).granted()
			b := two.exclusive(name).short().queued(1)
			b.wait().cancel() // so that the store has subscribed, if it needs to
			b.queued(1)
			w := b.wait()
			a.release()
			if round%2 == 0 {
				w.woken()
			}
			b.req.TTL = s.long
			sent := time.Now()
			b.granted()
			h := b.listed(two, store.Held)
			// The store ends the grant at heard+Left at the latest, plus or minus Slack.
			if heard := time.Now(); sent.Add(b.ans.TTL).After(heard.Add(h.Left + s.h.Slack)) {
				s.Errorf("the lease lasts for %v, and the store keeps it for %v", b.ans.TTL-heard.Sub(sent), h.Left)
			}
			b.release()
		}
	}},
}
