package storetest

import (
	"github.com/holdfast-lock/holdfast/store"
)

// G3: the token of each grant is greater than every earlier token of its name. The method try
// checks on every grant that tokens are below 2^53 and above the floor.
var fencingTests = []test{
	{name: "tokens stay below 2^53", run: func(s *suite) {
		a := s.open().exclusive(s.name())
		a.req.Tokens = 10
		a.granted()
	}},
	{name: "tokens grow after a release, on every connection", run: func(s *suite) {
		conns := []*conn{s.open(), s.open(), s.open()}
		name := s.name()
		token := int64(0)
		// Each connection is used after itself and after the others.
		for _, i := range []int{0, 0, 1, 1, 2, 2, 0, 2, 1} {
			a := conns[i].exclusive(name).granted()
			a.above(token)
			token = a.last()
			a.release()
		}
	}},
	{name: "tokens grow after an expiry", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).short().granted()
		b := two.exclusive(name)
		b.within(a.ans.TTL + s.h.Slack)
		b.above(a.last())
	}},
	{name: "tokens grow after a Leave", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		a.leave()
		two.exclusive(name).granted().above(a.last())
	}},
	{name: "tokens grow after a Break", needs: store.FeatureList, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		a.via(two).broken()
		two.exclusive(name).granted().above(a.last())
	}},
	{name: "tokens grow after a name was kept closed", needs: store.FeatureKeep, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		a.keep(store.Keep{State: store.Done, For: s.ttl})
		b := two.exclusive(name)
		b.within(s.ttl + s.h.Slack)
		b.above(a.last())
	}},
	{name: "tokens grow after all connections were closed and reopened", run: func(s *suite) {
		name := s.name()
		token := int64(0)
		for range 3 {
			a := s.open().exclusive(name)
			a.req.Tokens = 3
			a.granted().above(token)
			token = a.last()
			a.release()
			s.closeAll()
		}
	}},
	{name: "tokens of shared grants grow", needs: store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.shared(name).granted()
		b := two.shared(name).granted()
		b.above(a.last())
		a.release()
		c := one.shared(name).granted()
		c.above(b.last())
		b.release()
		c.release()
		two.exclusive(name).granted().above(c.last())
	}},
	{name: "a downgrade keeps the token, and the next one is greater", needs: store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		a.downgrade()
		a.refuses(two.exclusive(name), store.Held)
		two.shared(name).granted().above(a.last())
	}},
	{name: "a granted token is above the floor of the request", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		a.release()
		b := two.exclusive(name)
		b.req.Floor = a.last() + 1000 // a small step, because on some stores it raises a counter permanently
		b.granted().above(b.req.Floor)
		b.release()
		one.exclusive(name).granted().above(b.last())
	}},
	{name: "the floor of a renewal applies to the next block and the next grant", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		floor := a.last() + 1000
		a.extended(func(r *store.Renewal) { r.Floor = floor })
		a.release()
		b := two.exclusive(name).granted()
		b.above(floor)
		floor = b.last() + 1000
		out := b.extended(func(r *store.Renewal) { r.Floor, r.Tokens = floor, 1 })
		if out.Token <= floor {
			s.Fatalf("Renew: token %d, want one greater than the floor %d", out.Token, floor)
		}
	}},
	{name: "blocks of tokens do not overlap", run: func(s *suite) {
		conns := []*conn{s.open(), s.open(), s.open()}
		name := s.name()
		token := int64(0)
		for i := range 6 {
			a := conns[i%len(conns)].exclusive(name)
			a.req.Tokens = 1 + 7*(i%3)
			a.granted().above(token)
			token = a.last()
			a.release()
		}
	}},
	{name: "a block reserved by a renewal overlaps no other", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name)
		a.req.Tokens = 5
		token := a.granted().last()
		for range 3 {
			out := a.extended(func(r *store.Renewal) { r.Tokens = 8 })
			if out.Tokens < 1 || out.Tokens > 8 || out.Token <= token || last(out.Token, out.Tokens) > store.MaxToken {
				s.Fatalf("Renew: %d tokens from %d, want up to 8 that are greater than %d", out.Tokens, out.Token, token)
			}
			token = last(out.Token, out.Tokens)
		}
		a.release()
		two.exclusive(name).granted().above(token)
	}},
	{name: "a renewal reserves nothing while others are queued, but keeps its floor", needs: store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name)
		a.req.Tokens = 5
		a.granted()
		b := two.exclusive(name).queued(1)
		floor := a.last() + 1000
		out := a.extended(func(r *store.Renewal) { r.Tokens, r.Floor = 8, floor })
		if out.Tokens != 0 {
			s.Fatalf("Renew: %d tokens, want none, because others are queued", out.Tokens)
		}
		a.granted() // with the same tokens as before
		b.leave()
		out = a.extended(func(r *store.Renewal) { r.Tokens = 8 })
		if out.Tokens == 0 || out.Token <= floor {
			s.Fatalf("Renew: %d tokens from %d, want some above the floor %d, because the queue is empty", out.Tokens, out.Token, floor)
		}
	}},
}
