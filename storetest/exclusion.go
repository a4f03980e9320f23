package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// G1: two grants of one name that exclude each other are never live at the same time.
var exclusionTests = []test{
	{name: "a held name is refused to every other identity", run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		one.exclusive(name).granted()
		one.exclusive(name).refused()
		two.exclusive(name).refused()
		two.exclusive(name).queued(1)
	}},
	{name: "exactly one of many concurrent requests is granted", run: func(s *suite) {
		conns := []*conn{s.open(), s.open(), s.open(), s.open()}
		for range 10 {
			name := s.name()
			claims := make([]*claim, 12)
			for i := range claims {
				claims[i] = conns[i%len(conns)].exclusive(name)
			}
			var granted atomic.Int32
			s.parallel(len(claims), len(claims), func(i int) error {
				ctx, cancel := s.bounded()
				defer cancel()
				ans, err := claims[i].try(ctx)
				if err == nil && ans.Granted() {
					granted.Add(1)
				}
				return err
			})
			if n := granted.Load(); n != 1 {
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
