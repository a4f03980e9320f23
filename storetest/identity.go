package storetest

import (
	"github.com/holdfast-lock/holdfast/store"
)

// G4: Renew, Release, Leave and Break compare the identity of the grant. A late or repeated
// call does not affect any other grant.
var identityTests = []test{
	{name: "a release by another identity has no effect", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		one.exclusive(name).releaseNotHeld() // on the same connection, so that the session is the same
		two.exclusive(name).releaseNotHeld()
		two.exclusive(name).refused()
		a.extended(nil)
	}},
	{name: "a renewal by another identity is gone and extends nothing", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).short().granted()
		one.exclusive(name).gone() // with a long TTL
		two.exclusive(name).gone()
		two.exclusive(name).within(a.ans.TTL + s.h.Slack)
	}},
	{name: "a Leave by another identity has no effect", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		one.exclusive(name).leave()
		two.exclusive(name).leave()
		two.exclusive(name).refused()
		a.extended(nil)
	}},
	{name: "a Break by another identity has no effect", needs: store.FeatureList, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		one.exclusive(name).breakNotHeld()
		two.exclusive(name).breakNotHeld()
		two.exclusive(name).refused()
		a.extended(nil)
	}},
	{name: "a second release returns ErrNotHeld", run: func(s *suite) {
		a := s.open().exclusive(s.name()).granted()
		a.release()
		a.releaseNotHeld()
	}},
	{name: "a renewal after the release does not revive the grant", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		a.release()
		a.gone()
		two.exclusive(name).granted()
	}},
	{name: "a renewal after the expiry does not revive the grant", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).short().granted()
		a.expire() // and no other client takes the name
		a.gone()
		two.exclusive(name).granted()
	}},
	{name: "a release after the expiry returns ErrNotHeld", run: func(s *suite) {
		a := s.open().exclusive(s.name()).short().granted()
		a.expire()
		a.releaseNotHeld()
	}},
	{name: "a former holder cannot affect the next one", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).short().granted()
		b := two.exclusive(name)
		b.within(a.ans.TTL + s.h.Slack)
		a.gone()
		a.releaseNotHeld()
		a.leave()
		if s.caps.Features.Has(store.FeatureList) {
			a.breakNotHeld()
		}
		one.exclusive(name).refused()
		b.extended(nil)
	}},
	{name: "the identity of a waiter is not a grant", needs: store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := two.exclusive(name).queued(1)
		b.gone()
		b.releaseNotHeld()
		if s.caps.Features.Has(store.FeatureList) {
			b.breakNotHeld()
		}
		two.exclusive(name).queued(2) // the first waiter has kept its place
		a.release()
		b.granted()
	}},
	{name: "a grant can be used on any connection by its identity", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := a.via(two).granted() // the same grant, with the same token: see try
		for range 3 {
			b.extended(nil)
			a.extended(nil)
		}
		b.release()
		a.gone()
		c := one.exclusive(name).granted()
		c.via(two).leave()
		two.exclusive(name).granted()
	}},
	{name: "a former holder on another connection cannot affect the next one", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := a.via(two).granted() // the other connection remembers the grant
		a.release()
		c := one.exclusive(name).granted() // may reuse data that the store had for the first grant
		b.leave()
		two.exclusive(name).refused()
		b.gone()
		b.releaseNotHeld()
		two.exclusive(name).refused()
		c.extended(nil)
	}},
	{name: "an identity belongs to one name", run: func(s *suite) {
		one := s.open()
		a := one.exclusive(s.name()).granted()
		b := one.exclusive(s.name()).granted()
		stranger := one.exclusive(b.req.Name)
		stranger.req.ID = a.req.ID
		stranger.gone()
		stranger.releaseNotHeld()
		stranger.leave()
		a.extended(nil)
		b.extended(nil)
	}},
}
