package storetest

import (
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// keepTests test releases that keep the name closed for a time.
var keepTests = []test{
	{name: "a closed name is refused with its state and remaining time", needs: store.FeatureKeep, run: func(s *suite) {
		one, two := s.open2()
		for _, state := range []store.State{store.Done, store.Cooling} {
			name := s.name()
			a := one.exclusive(name).granted()
			start := time.Now()
			a.keep(store.Keep{State: state, For: s.long / 2})
			h := a.refuses(two.exclusive(name), state)
			s.between("Age", h.Age, 0, time.Since(start))
			s.between("Left", h.Left, s.long/2-time.Since(start), s.long/2)
		}
	}},
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
	{name: "a kept record may end before the grant would have", needs: store.FeatureKeep, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		start := time.Now()
		a.keep(store.Keep{State: store.Done, For: s.ttl})
		two.exclusive(name).freedAfter(start, s.ttl)
	}},
	{name: "closing a name wakes its waiters", needs: store.FeatureKeep | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		for _, state := range []store.State{store.Done, store.Cooling} {
			name := s.name()
			a := one.exclusive(name).granted()
			waiters := []*claim{two.exclusive(name).queued(1), two.exclusive(name).queued(2)}
			if state == store.Cooling {
				waiters = waiters[:1] // Cooling concerns only the next waiter, Done concerns all
			}
			var waits []*wait
			for _, b := range waiters {
				waits = append(waits, b.wait())
			}
			a.keep(store.Keep{State: state, For: s.long})
			for i, b := range waiters {
				waits[i].woken()
				a.refuses(b, state)
			}
		}
	}},
	{name: "a waiter is granted when the kept record ends", needs: store.FeatureKeep, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := two.exclusive(name).queued(1)
		a.keep(store.Keep{State: store.Cooling, For: s.ttl})
		took := b.served(s.ttl + patience)
		if limit := s.ttl + b.again + s.h.Slack; took > limit {
			s.Errorf("served after %v, want %v at most", took, limit)
		}
	}},
	{name: "a kept record cannot be renewed, released or left", needs: store.FeatureKeep, run: func(s *suite) {
		one, two := s.open2()
		for _, state := range []store.State{store.Done, store.Cooling} {
			name := s.name()
			a := one.exclusive(name).granted()
			a.keep(store.Keep{State: state, For: s.long})
			a.gone()
			two.exclusive(name).refused()
			a.releaseNotHeld()
			two.exclusive(name).refused()
			a.leave() // as the late clean-up of an Acquire would
			two.exclusive(name).refused()
		}
	}},
	{name: "a Break ends a kept record and wakes the waiter", needs: store.FeatureKeep | store.FeatureList, run: func(s *suite) {
		one, two := s.open2()
		for _, state := range []store.State{store.Done, store.Cooling} {
			name := s.name()
			a := one.exclusive(name).granted()
			a.keep(store.Keep{State: state, For: s.long})
			b := two.exclusive(name).queued(1)
			w := b.wait()
			two.exclusive(name).breakNotHeld()
			a.broken()
			w.woken()
			b.granted()
		}
	}},
	{name: "only the holder can close a name", needs: store.FeatureKeep, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := two.exclusive(name)
		if err := b.tryRelease(store.Keep{State: store.Done, For: s.long}); !errors.Is(err, store.ErrNotHeld) {
			s.Fatalf("Release: %v, want ErrNotHeld", err)
		}
		a.release()
		if err := a.tryRelease(store.Keep{State: store.Done, For: s.long}); !errors.Is(err, store.ErrNotHeld) {
			s.Fatalf("second Release: %v, want ErrNotHeld", err)
		}
		b.granted()
	}},
	{name: "only an exclusive grant can be kept as done", needs: store.FeatureKeep | store.FeatureShared, run: func(s *suite) {
		one := s.open()
		claims := []*claim{one.shared(s.name())}
		if s.caps.Features.Has(store.FeaturePermits) {
			claims = append(claims, one.permits(s.name(), 1, 1))
		}
		for _, a := range claims {
			a.granted()
			if err := a.tryRelease(store.Keep{State: store.Done, For: s.long}); !errors.Is(err, store.ErrInvalid) {
				s.Fatalf("Release of a %s grant as done: %v, want ErrInvalid", a.req.Mode, err)
			}
			a.release() // the grant was not changed
		}
	}},
	{name: "a cooling reader excludes writers but no readers", needs: store.FeatureKeep | store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.shared(name).granted()
		start := time.Now()
		a.keep(store.Keep{State: store.Cooling, For: s.ttl})
		b := two.shared(name).granted()
		b.release()
		two.exclusive(name).freedAfter(start, s.ttl)
	}},
	{name: "cooling permits use their weight and no more", needs: store.FeatureKeep | store.FeaturePermits, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.permits(name, 2, 4).granted()
		start := time.Now()
		a.keep(store.Keep{State: store.Cooling, For: s.ttl})
		b := two.permits(name, 2, 4).granted()
		two.permits(name, 1, 4).freedAfter(start, s.ttl)
		b.extended(nil)
	}},
}
