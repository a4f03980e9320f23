package storetest

import (
	"github.com/holdfast-lock/holdfast/store"
)

// G4: Renew, Release, Leave and Break compare the identity of the grant. A late or repeated
// call does not affect any other grant.
var identityTests = []test{
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
