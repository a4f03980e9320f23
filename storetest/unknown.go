package storetest

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// G5: an answer that got lost is asked for again or undone, under the same identity.
var unknownTests = []test{
	{name: "the same identity asked again is the same grant", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name)
		a.req.Tokens = 5
		first := a.granted().ans
		for range 3 {
			if ans := a.granted().ans; ans.Token != first.Token || ans.Tokens != first.Tokens {
				s.Fatalf("%d tokens from %d, then %d from %d", first.Tokens, first.Token, ans.Tokens, ans.Token)
			}
		}
		a.release() // one release ends it, however often it was asked for
		two.exclusive(name).granted()
	}},
	{name: "asking again starts the TTL anew", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).short().granted()
		time.Sleep(s.ttl / 2)
		start := time.Now()
		a.granted()
		two.exclusive(name).freedAfter(start, a.ans.TTL)
	}},
	{name: "a waiter whose grant was not heard of asks again and has it", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := two.exclusive(name).queued(1)
		a.release()
		token := b.granted().ans.Token
		if b.granted().ans.Token != token {
			s.Fatalf("token %d, then %d", token, b.ans.Token)
		}
	}},
	{name: "leaving gives back a grant that nobody heard of", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		b := two.exclusive(name).queued(1)
		w := b.wait()
		a.leave()
		w.woken()
		b.granted()
		a.gone()
	}},
	{name: "leaving is nil if there is nothing to undo", run: func(s *suite) {
		one := s.open()
		name := s.name()
		one.exclusive(name).leave()
		a := one.exclusive(name).granted()
		a.release()
		a.leave()
		b := one.exclusive(name).granted()
		b.leave()
		b.leave()
	}},
	{name: "a call whose context has ended returns, and leaving undoes it", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name)
		dead, cancel := context.WithCancel(context.Background())
		cancel()
		calls := map[string]func(){
			"Acquire": func() { a.try(dead) },
			"Wait":    func() { a.Wait(dead, name, a.req.ID) },
			"Leave":   func() { a.Leave(dead, name, a.req.ID) },
			"Renew":   func() { a.Renew(dead, []store.Renewal{a.renewal()}) },
			"Release": func() { a.Release(dead, name, a.req.ID, store.Keep{}) },
		}
		if s.caps.Features.Has(store.FeatureList) {
			calls["List"] = func() { a.List(dead, store.Query{Name: name}) }
			calls["Break"] = func() { a.Break(dead, name, a.req.ID) }
		}
		for call, f := range calls {
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				f()
			}()
			select {
			case <-returned:
			case <-time.After(patience):
				s.Fatalf("%s does not return though its context has ended", call)
			}
		}
		a.leave()
		two.exclusive(name).granted()
	}},
	{name: "calls cut off at any moment break nothing and are undone", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		for i := range 50 {
			a := one.exclusive(name).short()
			a.req.Queue = true
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*50*time.Microsecond)
			a.try(ctx)
			cancel()
			a.leave()
		}
		// A request still on its way when Leave overtook it lives for its TTL at most.
		two.exclusive(name).within(s.ttl + s.caps.Heartbeat + s.h.Slack)
	}},
}
