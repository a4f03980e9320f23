package storetest

import (
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Shared mode and permits. Requests are served in strict order.
var modesTests = []test{
	{name: "shared grants coexist", needs: store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		one.shared(name).granted()
		one.shared(name).granted()
		two.shared(name).granted()
	}},
	{name: "a writer waits for every reader", needs: store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a, b := one.shared(name).granted(), two.shared(name).granted()
		w := two.exclusive(name).queued(1)
		a.release()
		w.queued(1)
		wait := w.wait()
		b.release()
		wait.woken()
		w.granted()
		one.shared(name).refused()
	}},
	{name: "a later reader does not overtake a waiting writer", needs: store.FeatureShared | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.shared(name).granted()
		w := two.exclusive(name).queued(1)
		one.shared(name).refused()
		b := one.shared(name).queued(2)
		a.release()
		b.behind(1)
		w.granted()
		w.release()
		b.granted()
	}},
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
	{name: "a grant wakes the next waiter that fits beside it", needs: store.FeatureShared | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		w := one.exclusive(name).granted()
		a := two.shared(name).queued(1)
		b := one.shared(name).queued(2)
		w.release()
		b.queued(2) // the other waiter is still in front
		wait := b.wait()
		a.granted()
		wait.woken()
		b.granted()
	}},
	{name: "when a waiting writer leaves, the readers behind it are granted", needs: store.FeatureShared | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		one.shared(name).granted()
		w := two.exclusive(name).queued(1)
		b := one.shared(name).queued(2)
		wait := b.wait()
		w.leave()
		wait.woken()
		b.granted()
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
	{name: "permits are granted up to the limit", needs: store.FeaturePermits, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.permits(name, 1, 4).granted()
		b := two.permits(name, 2, 4).granted()
		two.permits(name, 2, 4).refused()
		one.permits(name, 1, 4).granted()
		two.permits(name, 1, 4).refused()
		b.release()
		two.permits(name, 3, 4).refused()
		one.permits(name, 2, 4).granted()
		a.release()
		two.permits(name, 2, 4).refused()
		two.permits(name, 1, 4).granted()
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
	{name: "a small request does not overtake a waiting large one", needs: store.FeaturePermits | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.permits(name, 2, 3).granted()
		big := two.permits(name, 3, 3).queued(1)
		one.permits(name, 1, 3).refused() // it would fit, but another request is queued
		small := one.permits(name, 1, 3).queued(2)
		a.release()
		small.queued(2)
		big.granted()
		small.queued(1)
		big.release()
		small.granted()
	}},
	{name: "when a waiting large request leaves, the small one behind it is granted", needs: store.FeaturePermits | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		one.permits(name, 2, 3).granted()
		big := two.permits(name, 3, 3).queued(1)
		small := one.permits(name, 1, 3).queued(2)
		wait := small.wait()
		big.leave()
		wait.woken()
		small.granted()
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
	{name: "shared mode and permits cannot be combined", needs: store.FeatureShared | store.FeaturePermits, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.shared(name).granted()
		two.permits(name, 1, 3).invalid()
		a.release()
		two.permits(name, 1, 3).granted()
		one.shared(name).invalid()
	}},
	{name: "an exclusive request takes all permits", needs: store.FeaturePermits, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.permits(name, 1, 3).granted()
		b := two.permits(name, 1, 3).granted()
		x := two.exclusive(name).queued(1)
		a.release()
		x.queued(1)
		b.release()
		x.granted()
		c := one.permits(name, 1, 3).queued(1)
		x.release()
		c.granted()
	}},
	{name: "a downgrade admits readers but no writer", needs: store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		r := two.shared(name).queued(1)
		w := r.wait()
		a.downgrade()
		w.woken()
		r.granted()
		refusal := two.exclusive(name).refused()
		for _, h := range refusal.Holders {
			if h.Mode != store.Shared {
				s.Errorf("a holder in %s mode, want shared", h.Mode)
			}
		}
		a.extended(nil)
		r.release()
		two.exclusive(name).refused()
		a.release()
		two.exclusive(name).granted()
	}},
	{name: "a downgrade sets the TTL of its renewal", needs: store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).short().granted()
		a.extended(func(r *store.Renewal) { r.Mode, r.TTL = store.Shared, s.long })
		a.expire()
		two.exclusive(name).refused()
	}},
	{name: "a reader cannot become a writer by renewing", needs: store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.shared(name).granted()
		r := a.renewal()
		r.Mode = store.Exclusive
		ctx, cancel := s.bounded()
		defer cancel()
		out, err := a.Renew(ctx, []store.Renewal{r})
		if err == nil && len(out) == 1 && out[0].Status == store.Extended {
			s.Errorf("Renew from shared to exclusive: extended, want an error")
		}
		two.shared(name).granted()
	}},
}
