package memstore_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	name      = "order:42"
	ttl       = 30 * time.Second
	heartbeat = 5 * time.Second
)

// bubble runs a test with fake time. The store must be empty at its end.
func bubble(t *testing.T, f func(t *testing.T, s *memstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		f(t, s)
		if n := memstore.Len(s); n != 0 {
			t.Errorf("%d names left in memory", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func request(name string) store.Request {
	return store.Request{
		Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1,
		TTL: ttl, Tokens: 1,
	}
}

func exclusive() store.Request { return request(name) }

func reader() store.Request {
	req := request(name)
	req.Mode = store.Shared
	return req
}

func permits(weight, limit int) store.Request {
	req := request(name)
	req.Mode, req.Weight, req.Limit = store.Permits, weight, limit
	return req
}

func queued(req store.Request) store.Request {
	req.Queue = true
	return req
}

func granted(t testing.TB, s store.Store, req store.Request) store.Answer {
	t.Helper()
	a, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Granted() {
		t.Fatalf("refused: %+v", *a.Refusal)
	}
	if a.TTL != req.TTL || a.Tokens < 1 || a.Token <= req.Floor {
		t.Fatalf("granted %+v for %+v", a, req)
	}
	return a
}

func refused(t testing.TB, s store.Store, req store.Request) store.Refusal {
	t.Helper()
	a, err := s.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if a.Granted() {
		t.Fatalf("granted: %+v", a)
	}
	if a.Refusal.Again < time.Millisecond || a.Refusal.Again > heartbeat/2 {
		t.Fatalf("ask again within %v", a.Refusal.Again)
	}
	return *a.Refusal
}

// waits queues a request that is refused.
func waits(t testing.TB, s store.Store, req store.Request) store.Request {
	t.Helper()
	req.Queue = true
	if r := refused(t, s, req); r.Place == 0 {
		t.Fatal("not queued")
	}
	return req
}

func release(t testing.TB, s store.Store, req store.Request) {
	t.Helper()
	if err := s.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
}

func leave(t testing.TB, s store.Store, reqs ...store.Request) {
	t.Helper()
	for _, req := range reqs {
		if err := s.Leave(t.Context(), req.Name, req.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func renewal(req store.Request) store.Renewal {
	return store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode}
}

func renew(t testing.TB, s store.Store, r store.Renewal) store.Renewed {
	t.Helper()
	out, err := s.Renew(t.Context(), []store.Renewal{r})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// A call is a Wait in flight.
type call struct{ done chan error }

// waiting starts a Wait. It works only in a bubble.
func waiting(t testing.TB, s store.Store, req store.Request) call {
	c := call{make(chan error, 1)}
	go func() { c.done <- s.Wait(t.Context(), req.Name, req.ID) }()
	synctest.Wait()
	return c
}

// wakes checks that the Wait has returned, without any time passing.
func (c call) wakes(t testing.TB) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-c.done:
		if err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatal("Wait has not returned")
	}
}

// sleeps checks that the Wait has not returned.
func (c call) sleeps(t testing.TB) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-c.done:
		t.Fatalf("Wait returned %v", err)
	default:
	}
}
