package memstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
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

func TestHandlesWithTheSameURLShareTheirLocks(t *testing.T) {
	a, b, other := open(t, "memory:"), open(t, "memory:"), open(t, "memory:other")
	token := granted(t, a, request("order")).Token
	refused(t, b, request("order"))
	granted(t, other, request("order"))
	for _, s := range []*memstore.Store{a, a, other} { // a second Close does nothing
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	a = open(t, "memory:")
	if r := refused(t, a, request("order")); len(r.Holders) != 1 || r.Holders[0].Token != token {
		t.Errorf("refusal %+v, want the token %d", r, token)
	}
	a.Close()
	b.Close()
	if n := memstore.SharedTables(); n != 0 {
		t.Errorf("%d shared tables left", n)
	}
	a = open(t, "memory:") // a new table
	granted(t, a, request("order"))
	a.Close()
}

func TestNewReturnsAPrivateStore(t *testing.T) {
	for _, s := range []*memstore.Store{memstore.New(), memstore.New(), open(t, "memory:")} {
		defer s.Close()
		granted(t, s, request("order"))
	}
}

func TestCloseKeepsGrantsUntilTheirTTLIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t, "memory:"), open(t, "memory:")
		defer b.Close()
		granted(t, a, request("order"))
		w := queued("order")
		refused(t, a, w)
		ended := make(chan error, 2)
		for _, s := range []*memstore.Store{a, b} {
			go func() { ended <- s.Wait(t.Context(), w.Name, w.ID) }()
		}
		synctest.Wait()
		a.Close()
		if err := <-ended; !errors.Is(err, store.ErrClosed) {
			t.Errorf("Wait: %v, want ErrClosed", err)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("Wait on the other handle: %v, want it to go on", err)
		default:
		}
		refused(t, b, request("order"))
		time.Sleep(ttl)
		granted(t, b, request("order"))
	})
}

func TestHandlesCanBeOpenedAndClosedConcurrently(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				s := open(t, "memory:busy")
				ended := make(chan error)
				go func() {
					req := queued("order")
					a, err := s.Acquire(context.Background(), req)
					if err == nil && !a.Granted() {
						err = s.Wait(context.Background(), req.Name, req.ID)
					}
					ended <- err
				}()
				if rand.IntN(2) == 0 {
					runtime.Gosched()
				}
				s.Close()
				if err := <-ended; err != nil && !errors.Is(err, store.ErrClosed) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := memstore.SharedTables(); n != 0 {
		t.Errorf("%d shared tables left", n)
	}
}

func TestURLWithAHostOrParametersIsInvalid(t *testing.T) {
	for _, url := range []string{
		"memory://localhost", "memory://localhost:6379/name", "memory://user:secret@/name",
		"memory:?ttl=1s", "memory:name?x",
	} {
		if _, err := store.Open(t.Context(), url); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", url, err)
		}
	}
	if n := memstore.SharedTables(); n != 0 {
		t.Errorf("%d shared tables left", n)
	}
}
