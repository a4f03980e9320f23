// Package exacttest tests stores that execute all calls one after the other, as memory and
// SQLite do. They promise more than the contract of package store: they wake exactly the
// waiters that should ask again, and list names in order.
package exacttest

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Store is the store under test.
type Store struct {
	store.Store

	// Woken reports whether a queued identity was woken since its last refusal.
	Woken func(name string, id store.ID) bool

	// Sleep lets time pass on the store's clock.
	Sleep func(d time.Duration)
}

// Run runs all tests as subtests of t. The function around calls its argument with the store;
// it may use the same store for all tests. The last test leaves the store without tokens.
func Run(t *testing.T, around func(t *testing.T, test func(t *testing.T, s Store))) {
	for _, test := range allTests() {
		t.Run(test.name, func(t *testing.T) {
			around(t, func(t *testing.T, s Store) {
				test.run(&suite{T: t, Store: s, name: "name " + store.NewID().String()})
			})
		})
	}
}

type test struct {
	name string
	run  func(s *suite)
}

func allTests() []test {
	tests := append(wakeTests(), requestTests...)
	return append(tests, test{"tokens end at 2^53-1", tokensEnd})
}

// ttl is longer than a test sleeps.
const ttl = time.Minute

// A suite is the state of one test. Each test uses one name.
type suite struct {
	*testing.T
	Store
	name string
}

// request returns a request for the name under a new identity, in a mode such as "exclusive",
// "shared", or "3/5" for three of five permits.
func (s *suite) request(mode string) store.Request {
	req := store.Request{Name: s.name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: ttl, Tokens: 1}
	switch mode {
	case "exclusive":
	case "shared":
		req.Mode = store.Shared
	default:
		req.Mode, req.Weight, req.Limit = store.Permits, int(mode[0]-'0'), int(mode[2]-'0')
	}
	return req
}

func (s *suite) acquire(req store.Request) store.Answer {
	s.Helper()
	answer, err := s.Acquire(s.Context(), req)
	s.check(err)
	return answer
}

// granted makes a request in this mode and expects a grant.
func (s *suite) granted(mode string) store.Request {
	s.Helper()
	req := s.request(mode)
	if a := s.acquire(req); !a.Granted() {
		s.Fatalf("refused: %+v", *a.Refusal)
	}
	return req
}

func (s *suite) refused(req store.Request) store.Refusal {
	s.Helper()
	a := s.acquire(req)
	if a.Granted() {
		s.Fatalf("granted: %+v", a)
	}
	return *a.Refusal
}

func (s *suite) invalid(req store.Request) {
	s.Helper()
	_, err := s.Acquire(s.Context(), req)
	s.is(err, store.ErrInvalid)
}

func (s *suite) release(req store.Request) {
	s.Helper()
	s.check(s.Release(s.Context(), s.name, req.ID, store.Keep{}))
}

func (s *suite) keep(req store.Request, state store.State, d time.Duration) {
	s.Helper()
	s.check(s.Release(s.Context(), s.name, req.ID, store.Keep{State: state, For: d}))
}

func (s *suite) leave(req store.Request) {
	s.Helper()
	s.check(s.Leave(s.Context(), s.name, req.ID))
}

func (s *suite) renew(req store.Request, mode store.Mode, ttl time.Duration) error {
	_, err := s.Renew(s.Context(), []store.Renewal{{Name: s.name, ID: req.ID, Mode: mode, TTL: ttl}})
	return err
}

func (s *suite) stepDown(req store.Request) {
	s.Helper()
	s.check(s.renew(req, store.Shared, ttl))
}

// expire lets only this grant expire.
func (s *suite) expire(req store.Request) {
	s.Helper()
	s.check(s.renew(req, req.Mode, time.Second))
	s.Sleep(time.Second)
}

func (s *suite) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) is(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("error %v, want %v", err, want)
	}
}
