package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// G1: two grants of one name that exclude each other are never live at the same time.
var exclusionTests = []test{
	{name: "exactly one of many concurrent requests is granted", run: func(s *suite) {
		conns := []*conn{s.open(), s.open(), s.open(), s.open()}
		for range 10 {
			name := s.name()
			claims := make([]*claim, 12)
			for i := range claims {
				claims[i] = conns[i%len(conns)].exclusive(name)
			}
			if n := len(s.attemptAll(claims)); n != 1 {
				s.Fatalf("%d of %d were granted", n, len(claims))
			}
		}
	}},
	{name: "competing holders never overlap, and their tokens grow", run: func(s *suite) {
		conns := []*conn{s.open(), s.open(), s.open(), s.open()}
		const rounds, workers = 60, 8
		name := s.name()
		claims := make([]*claim, rounds)
		for i := range claims {
			claims[i] = conns[i%len(conns)].exclusive(name)
		}
		var inside atomic.Int32
		var highest atomic.Int64
		s.parallel(rounds, workers, func(i int) error {
			k := claims[i]
			ctx, cancel := s.boundedFor(workers)
			defer cancel()
			if err := k.drive(ctx); err != nil {
				return err
			}
			if inside.Add(1) != 1 {
				return errors.New("another holder is inside")
			}
			if before := highest.Swap(k.ans.Token); before >= k.ans.Token {
				return fmt.Errorf("token %d after %d", k.ans.Token, before)
			}
			time.Sleep(time.Millisecond) // gives another holder the chance to overlap
			inside.Add(-1)
			return k.tryRelease(store.Keep{})
		})
	}},
}

// attemptAll makes one attempt for each claim, all at once, and returns the claims that were granted.
func (s *suite) attemptAll(claims []*claim) []*claim {
	s.Helper()
	s.parallel(len(claims), len(claims), func(i int) error {
		_, err := claims[i].attempt()
		return err
	})
	return slices.DeleteFunc(claims, func(k *claim) bool { return k.ans.Token == 0 })
}

// G2, the store's part: a grant lasts for its granted TTL, neither shorter nor much longer. The
// core computes the deadline of the lease from the same TTL.
var lossTests = []test{
	{name: "a grant lasts at least for its TTL", run: func(s *suite) {
		one, two, _ := s.open2()
		for _, ttl := range []time.Duration{s.TTL, s.TTL*5/2 + 1} { // the second shows rounding
			if s.caps.CheckTTL(ttl) != nil {
				continue
			}
			name := s.name()
			a := one.exclusive(name)
			a.req.TTL = ttl
			start := time.Now()
			a.granted()
			two.exclusive(name).within(time.Until(start.Add(a.ans.TTL)) + s.Slack)
			// Servers that count in milliseconds may be early by a hundredth. The core's margin is wider.
			if took := time.Since(start); took < a.ans.TTL-a.ans.TTL/100 {
				s.Fatalf("the name was freed %v after it was taken for %v", took, a.ans.TTL)
			}
		}
	}},
}

// G3: the token of each grant is greater than every earlier token of its name. The method try
// checks on every grant that tokens are below 2^53 and above the floor.
var fencingTests = []test{
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
}

// G4: Renew, Release, Leave and Break compare the identity. A late call does not affect another grant.
var identityTests = []test{
	{name: "a former holder cannot affect the next one", run: func(s *suite) {
		one, two, name := s.open2()
		a := one.exclusive(name).short().granted()
		b := two.exclusive(name)
		b.within(a.ans.TTL + s.Slack)
		a.renewed(store.Gone, 0)
		a.expect("Release", a.tryRelease(store.Keep{}), store.ErrNotHeld)
		a.leave()
		if s.caps.Features.Has(store.FeatureList) {
			a.expect("Break", a.tryBreak(one), store.ErrNotHeld)
		}
		one.exclusive(name).refused()
		b.extended()
	}},
}

// Shared mode and permits.
var modesTests = []test{
	{name: "concurrent requests for permits do not exceed the limit", needs: store.FeaturePermits, run: func(s *suite) {
		one, two, name := s.open2()
		const limit = 5
		var claims []*claim
		for range 10 {
			claims = append(claims, one.permits(name, 1, limit), two.permits(name, 2, limit))
		}
		sum := 0
		for _, k := range s.attemptAll(claims) {
			sum += k.req.Weight
		}
		if sum != limit && sum != limit-1 { // a single permit may be left, which is too few for a request for two
			s.Fatalf("%d permits of %d are out", sum, limit)
		}
	}},
	{name: "an invalid renewal does not affect the others", needs: store.FeatureShared, run: func(s *suite) {
		one := s.open()
		invalid := one.shared(s.name()).granted().renewal()
		invalid.Mode = store.Exclusive // as in a renewal that a downgrade has overtaken
		one.renewBesides(invalid)
	}},
	{name: "a renewal with a floor above all tokens does not affect the others", run: func(s *suite) {
		one := s.open()
		for _, tokens := range []int{0, 10} {
			invalid := one.exclusive(s.name()).granted().renewal()
			invalid.TTL, invalid.Tokens, invalid.Floor = 2*invalid.TTL, tokens, store.MaxToken
			one.renewBesides(invalid)
		}
	}},
}

// renewBesides makes a renewal that is invalid, between two others that must succeed.
func (c *conn) renewBesides(invalid store.Renewal) {
	s := c.s
	s.Helper()
	first, last := c.exclusive(s.name()).granted(), c.exclusive(s.name()).granted()
	out, err := c.renew(first.renewal(), invalid, last.renewal())
	if err != nil || len(out) != 3 || out[0].Status != store.Extended || out[2].Status != store.Extended ||
		out[1].Status != store.Unknown || !errors.Is(out[1].Err, store.ErrInvalid) {
		s.Fatalf("Renew: %+v, %v, want an ErrInvalid for the second renewal only", out, err)
	}
}

// A store refuses calls for features that it does not declare, without any effect.
var undeclaredTests = []test{
	{name: "List and Break are refused", lacks: store.FeatureList, run: func(s *suite) {
		one := s.open()
		a := one.exclusive(s.name()).granted()
		_, err := one.list(store.Query{Name: a.req.Name})
		a.expect("List", err, store.ErrUnsupported)
		a.expect("Break", a.tryBreak(one), store.ErrUnsupported)
		a.extended()
	}},
	{name: "a release with Keep is refused and releases nothing", lacks: store.FeatureKeep, run: func(s *suite) {
		a := s.open().exclusive(s.name()).granted()
		for _, state := range []store.State{store.Done, store.Cooling} {
			a.expect("Release", a.tryRelease(store.Keep{State: state, For: s.long}), store.ErrUnsupported)
		}
		a.extended()
	}},
}
