package memstore_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func open(t testing.TB, url string) *memstore.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*memstore.Store)
}

// everyCall calls every method of a store, and yields the name and the error of each.
func everyCall(ctx context.Context, s store.Store) iter.Seq2[string, error] {
	id := store.NewID()
	return func(yield func(string, error) bool) {
		_, err := s.Acquire(ctx, exclusive())
		_ = yield("Acquire", err) &&
			yield("Wait", s.Wait(ctx, name, id)) &&
			yield("Leave", s.Leave(ctx, name, id)) &&
			yield("Release", s.Release(ctx, name, id, store.Keep{})) &&
			yield("Break", s.Break(ctx, name, id))
		_, err = s.Renew(ctx, []store.Renewal{{Name: name, ID: id, TTL: ttl, Mode: store.Exclusive}})
		yield("Renew", err)
		_, err = s.List(ctx, store.Query{})
		yield("List", err)
	}
}

func TestHandlesWithTheSameURLShareTheirLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, other := open(t, "memory:"), open(t, "memory:"), open(t, "memory:other")
		req := exclusive()
		granted(t, a, req)
		refused(t, b, exclusive())
		granted(t, other, exclusive())
		w := waits(t, b, exclusive())
		c := waiting(t, b, w)
		release(t, a, req)
		c.wakes(t)
		token := granted(t, b, w).Token
		for _, s := range []*memstore.Store{a, a, other} { // a second Close does nothing
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		a = open(t, "memory:")
		if r := refused(t, a, exclusive()); len(r.Holders) != 1 || r.Holders[0].Token != token {
			t.Errorf("refusal %+v", r)
		}
		a.Close()
		b.Close()
		if n := memstore.SharedTables(); n != 0 {
			t.Errorf("%d shared tables left", n)
		}
		a = open(t, "memory:") // a new table
		granted(t, a, exclusive())
		a.Close()
	})
}

func TestNewReturnsAPrivateStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, c := memstore.New(), memstore.New(), open(t, "memory:")
		for _, s := range []*memstore.Store{a, b, c} {
			defer s.Close()
			granted(t, s, exclusive())
		}
	})
}

func TestClosedHandleFailsAndOthersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t, "memory:"), open(t, "memory:")
		defer b.Close()
		req := exclusive()
		granted(t, a, req)
		w := waits(t, a, exclusive())
		onA, onB := waiting(t, a, w), waiting(t, b, w)
		a.Close()
		synctest.Wait()
		is(t, <-onA.done, store.ErrClosed)
		onB.sleeps(t)
		for what, err := range everyCall(t.Context(), a) {
			if !errors.Is(err, store.ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
		// Its grant stays until the TTL is over.
		refused(t, b, exclusive())
		time.Sleep(ttl)
		granted(t, b, exclusive())
	})
}

func TestURLWithAHostOrParametersIsInvalid(t *testing.T) {
	for _, url := range []string{
		"memory://localhost", "memory://localhost:6379/name", "memory://user:secret@/name",
		"memory:?ttl=1s", "memory:name?x",
	} {
		_, err := store.Open(t.Context(), url)
		is(t, err, store.ErrInvalid)
		t.Log(err)
	}
	if n := memstore.SharedTables(); n != 0 {
		t.Errorf("%d shared tables left", n)
	}
}

func TestCapabilitiesOfTheMemoryStore(t *testing.T) {
	caps := memstore.New().Capabilities()
	want := store.Capabilities{
		Store: "memory",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue |
			store.FeatureKeep | store.FeatureList,
		MinTTL: 10 * time.Millisecond, Heartbeat: heartbeat, Instant: true,
	}
	if caps != want {
		t.Errorf("%+v, want %+v", caps, want)
	}
}
