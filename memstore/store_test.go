package memstore_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// ttl is the TTL of a request.
const ttl = time.Minute

var (
	request, queued           = suites.Request, suites.Queued
	granted, refused, release = suites.Granted, suites.Refused, suites.Release
)

func TestTokensStartAt1AndComeInBlocksOfAtMost4096(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	if got := granted(t, s, request("one")); got.Token != 1 || got.Tokens != 1 {
		t.Errorf("granted %+v, want token 1", got)
	}
	many := request("another")
	many.Tokens = 1 << 20
	if got := granted(t, s, many); got.Token != 2 || got.Tokens != 4096 {
		t.Errorf("granted %+v, want 4096 tokens from 2", got)
	}
}

func TestNameCanHaveThousandsOfHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		defer s.Close()
		const n = 5000
		permits := func(weight int) store.Request {
			req := request("order")
			req.Mode, req.Weight, req.Limit = store.Permits, weight, n
			return req
		}
		renewals := make([]store.Renewal, n)
		for i := range renewals {
			req := permits(1)
			granted(t, s, req)
			renewals[i] = suites.Renewal(req)
		}
		refused(t, s, permits(1))
		suites.AllExtended(t, s, renewals...)
		for i := 0; i < n; i += 2 {
			for _, want := range []error{nil, store.ErrNotHeld} {
				if err := s.Release(t.Context(), "order", renewals[i].ID, store.Keep{}); !errors.Is(err, want) {
					t.Fatalf("Release: %v, want %v", err, want)
				}
			}
		}
		granted(t, s, permits(n/2))
		refused(t, s, permits(1))
		time.Sleep(ttl)
		granted(t, s, request("order"))
	})
}

func TestExpiredNamesAreSweptByLaterRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		defer s.Close()
		const n = 1_000
		for range 5 {
			for range n {
				granted(t, s, request(store.NewID().String()))
			}
			time.Sleep(ttl)
		}
		if got := len(memstore.Names(s)); got > 3*n {
			t.Errorf("%d names in memory, though at most %d were alive", got, n)
		}
		for range 20 * n {
			a := request(store.NewID().String())
			granted(t, s, a)
			release(t, s, a)
		}
		if got := len(memstore.Names(s)); got > n/100 {
			t.Errorf("%d names in memory, though none is alive", got)
		}
	})
}
