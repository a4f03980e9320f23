package storetest

import (
	"errors"

	"github.com/holdfast-lock/holdfast/store"
)

// A store refuses calls for features that it does not declare, without any effect.
var undeclaredTests = []test{
	{name: "List and Break are refused", lacks: store.FeatureList, run: func(s *suite) {
		one := s.open()
		a := one.exclusive(s.name()).granted()
		ctx, cancel := s.bounded()
		defer cancel()
		if _, err := one.List(ctx, store.Query{Name: a.req.Name}); !errors.Is(err, store.ErrUnsupported) {
			s.Errorf("List: %v, want ErrUnsupported", err)
		}
		if err := a.tryBreak(); !errors.Is(err, store.ErrUnsupported) {
			s.Errorf("Break: %v, want ErrUnsupported", err)
		}
		a.extended(nil)
	}},
	{name: "a release with Keep is refused and releases nothing", lacks: store.FeatureKeep, run: func(s *suite) {
		a := s.open().exclusive(s.name()).granted()
		for _, state := range []store.State{store.Done, store.Cooling} {
			if err := a.tryRelease(store.Keep{State: state, For: s.long}); !errors.Is(err, store.ErrUnsupported) {
				s.Errorf("Release: %v, want ErrUnsupported", err)
			}
		}
		a.extended(nil)
	}},
}
