package storetest

import (
	"github.com/holdfast-lock/holdfast/store"
)

// G4: renew, release, leave and break compare the grant's own identity. A late or repeated
// call touches nobody else.
var identityTests = []test{
	{name: "a release by another identity touches nothing", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		one.exclusive(name).releaseNotHeld() // same connection, so no session excuses it
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
	{name: "leaving under another identity touches nothing", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		one.exclusive(name).leave()
		two.exclusive(name).leave()
		two.exclusive(name).refused()
		a.extended(nil)
	}},
	{name: "a break by another identity touches nothing", needs: store.FeatureList, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		one.exclusive(name).breakNotHeld()
		two.exclusive(name).breakNotHeld()
		two.exclusive(name).refused()
		a.extended(nil)
	}},
	{name: "a second release is not held", run: func(s *suite) {
		a := s.open().exclusive(s.name()).granted()
		a.release()
		a.releaseNotHeld()
	}},
	{name: "a renewal that comes after the release revives nothing", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		a.release()
		a.gone()
		two.exclusive(name).granted()
	}},
	{name: "a renewal that comes after the expiry revives nothing", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).short().granted()
		a.expire() // and nobody takes the name
		a.gone()
		two.exclusive(name).granted()
	}},
	{name: "a release that comes after the expiry is not held", run: func(s *suite) {
		a := s.open().exclusive(s.name()).short().granted()
		a.expire()
		a.releaseNotHeld()
	}},
	{name: "a former holder cannot touch the next one", run: func(s *suite) {
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
	{name: "a waiter's identity is no grant", needs: store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := two.exclusive(name).queued(1)
		b.gone()
		b.releaseNotHeld()
		if s.caps.Features.Has(store.FeatureList) {
			b.breakNotHeld()
		}
		two.exclusive(name).queued(2) // the first has kept its place
		a.release()
		b.granted()
	}},
	{name: "a grant is known by its identity through any connection", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := a.via(two).granted() // the same grant, with the same token: see try
		b.extended(nil)
		b.release()
		a.gone()
		c := one.exclusive(name).granted()
		c.via(two).leave()
		two.exclusive(name).granted()
	}},
	{name: "an identity is known by its name", run: func(s *suite) {
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
