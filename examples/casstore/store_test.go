package casstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// A toyServer is a server in this process.
type toyServer struct {
	mu     sync.Mutex
	values map[string]string
	last   int64
	base   time.Time
	before func() // if set, is called before the first Swap
}

func (s *toyServer) Get(ctx context.Context, key string) (string, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key], time.Since(s.base), ctx.Err()
}

func (s *toyServer) Swap(ctx context.Context, key, old, new string) (bool, error) {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if s.values[key] != old {
		return false, nil
	}
	if new == "" {
		delete(s.values, key)
	} else {
		s.values[key] = new
	}
	return true, nil
}

func (s *toyServer) Next(ctx context.Context, floor int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, floor) + 1
	return s.last, ctx.Err()
}

func harness() storetest.Harness {
	var server *toyServer
	return storetest.Harness{
		Around: func(t *testing.T, test func(t *testing.T)) {
			synctest.Test(t, func(t *testing.T) {
				server = &toyServer{values: make(map[string]string), base: time.Now()}
				test(t)
			})
		},
		Open: func(testing.TB) store.Store { return New(server) },
		Residue: func(testing.TB) []string {
			server.mu.Lock()
			defer server.mu.Unlock()
			return slices.Collect(maps.Keys(server.values))
		},
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness()) }

func TestCompare(t *testing.T) { storetest.Compare(t, harness(), storetest.CompareOptions{}) }

// A client reads that a name is free. Before it writes, another one takes the name and releases it. The
// token of the first must be the higher one nevertheless.
func TestTokensGrowIfANameIsTakenAndReleasedInBetween(t *testing.T) {
	server := &toyServer{values: make(map[string]string), base: time.Now()}
	between := int64(0)
	server.before = func() { between = suites.TokenOf(t, New(server), "n") }
	if token := suites.Granted(t, New(server), suites.Request("n")).Token; token <= between {
		t.Errorf("token %d after %d", token, between)
	}
}
