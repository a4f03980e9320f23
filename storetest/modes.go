package storetest

import (
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Shared mode and permits. Requests are served in strict order.
var modesTests = []test{
	{name: "neighbouring readers are woken and granted together", needs: store.FeatureShared | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		w := one.exclusive(name).granted()
		readers := []*claim{two.shared(name).queued(1), one.shared(name).queued(2), two.shared(name).queued(3)}
		next := two.exclusive(name).queued(4)
		late := one.shared(name).queued(5)
		var waits []*wait
		for _, r := range readers {
			waits = append(waits, r.wait())
		}
		w.release()
		for i, r := range readers {
			waits[i].woken()
			r.granted()
		}
		next.queued(1)
		late.queued(2)
	}},
	{name: "a reader expires although others renew", needs: store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		dead := one.shared(name).short().granted()
		live := two.shared(name).granted()
		for start := time.Now(); time.Since(start) < dead.ans.TTL+s.h.Slack; time.Sleep(s.ttl / 4) {
			live.extended(nil)
		}
		dead.gone()
		live.release()
		one.exclusive(name).granted()
	}},
	{name: "concurrent requests for permits do not exceed the limit", needs: store.FeaturePermits, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		const limit = 5
		var claims []*claim
		for range 10 {
			claims = append(claims, one.permits(name, 1, limit), two.permits(name, 2, limit))
		}
		s.parallel(len(claims), len(claims), func(i int) error {
			ctx, cancel := s.bounded()
			defer cancel()
			_, err := claims[i].try(ctx)
			return err
		})
		sum := 0
		for _, k := range claims {
			if k.ans.Token != 0 {
				sum += k.req.Weight
			}
		}
		if sum != limit && sum != limit-1 { // a single permit may be left, which is too few for a request for two
			s.Fatalf("%d permits of %d are out", sum, limit)
		}
	}},
	{name: "a holder of permits expires although others renew", needs: store.FeaturePermits, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		dead := one.permits(name, 2, 3).short().granted()
		live := two.permits(name, 1, 3).granted()
		for start := time.Now(); time.Since(start) < dead.ans.TTL+s.h.Slack; time.Sleep(s.ttl / 4) {
			live.extended(nil)
		}
		one.permits(name, 3, 3).refused()
		one.permits(name, 2, 3).granted()
		dead.gone()
	}},
	{name: "different limits return ErrInvalid with both limits", needs: store.FeaturePermits, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.permits(name, 1, 4321).granted()
		for _, queue := range []bool{false, true} {
			b := two.permits(name, 1, 8765)
			b.req.Queue = queue
			if err := b.invalid(); !strings.Contains(err.Error(), "4321") || !strings.Contains(err.Error(), "8765") {
				s.Errorf("the error does not contain both limits, 4321 and 8765: %v", err)
			}
		}
		a.release() // the invalid requests left nothing queued
		if c := two.permits(name, 1, 8765).granted(); c.ans.Waiters != 0 {
			s.Errorf("%d waiters, want none", c.ans.Waiters)
		}
	}},
}
