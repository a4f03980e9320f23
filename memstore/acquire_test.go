package memstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// These tests are about what memstore promises beyond the contract. The contract itself is
// tested by TestConformance.

func TestGrantLastsExactlyItsTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		granted(t, s, exclusive())
		time.Sleep(ttl - 1)
		refused(t, s, exclusive())
		time.Sleep(time.Nanosecond)
		b := exclusive()
		granted(t, s, b)
		release(t, s, b)
	})
}

func TestRepeatedRequestMustNotDifferFromTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := permits(2, 4)
		granted(t, s, a)
		other := a
		other.Weight = 3
		_, err := s.Acquire(t.Context(), other)
		is(t, err, store.ErrInvalid)
		other.Mode, other.Weight, other.Limit = store.Exclusive, 1, 0
		_, err = s.Acquire(t.Context(), other)
		is(t, err, store.ErrInvalid)

		b := waits(t, s, permits(3, 4))
		b.Weight = 4
		_, err = s.Acquire(t.Context(), b)
		is(t, err, store.ErrInvalid)
		release(t, s, a)
	})
}

func TestRequestThatCannotMixWithAWaiterIsInvalid(t *testing.T) {
	for _, test := range []struct{ waits, asks store.Request }{
		{reader(), permits(1, 4)},
		{permits(1, 4), reader()},
		{permits(1, 4), permits(1, 5)},
	} {
		t.Run(fmt.Sprintf("%s %d after %s %d", test.asks.Mode, test.asks.Limit, test.waits.Mode, test.waits.Limit), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				a := exclusive()
				granted(t, s, a)
				waits(t, s, test.waits)
				_, err := s.Acquire(t.Context(), queued(test.asks))
				is(t, err, store.ErrInvalid)
				leave(t, s, test.waits)
				waits(t, s, test.asks)
				leave(t, s, a, test.asks)
			})
		})
	}
}

func TestErrorRemovesTheRequestFromTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, permits(1, 4))
		c := waits(t, s, exclusive())
		a.Mode = store.Shared
		renew(t, s, renewal(a)) // permits cannot mix with the shared mode
		_, err := s.Acquire(t.Context(), b)
		is(t, err, store.ErrInvalid)
		if r := refused(t, s, c); r.Place != 1 {
			t.Errorf("place %d, want 1", r.Place)
		}
		leave(t, s, a, c)
	})
}

func TestTokensStartAt1AndComeInBlocksOfAtMost4096(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := exclusive(), request("another name")
		if got := granted(t, s, a); got.Token != 1 || got.Tokens != 1 {
			t.Errorf("granted %+v, want token 1", got)
		}
		b.Tokens = 1 << 20
		if got := granted(t, s, b); got.Token != 2 || got.Tokens != 4096 {
			t.Errorf("granted %+v, want 4096 tokens from 2", got)
		}
		leave(t, s, a, b)
	})
}

func TestTokensEndBelow2To53(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.Floor = store.MaxToken
		_, err := s.Acquire(t.Context(), a)
		is(t, err, store.ErrInvalid)
		a.Floor = store.MaxToken - 2
		a.Tokens = 10
		if got := granted(t, s, a); got.Token != store.MaxToken-1 || got.Tokens != 2 {
			t.Errorf("%+v, want the last two tokens", got)
		}
		release(t, s, a)
		_, err = s.Acquire(t.Context(), exclusive())
		is(t, err, store.ErrInvalid)
	})
}

func TestRefusalListsTheOldestHolders(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		var readers []store.Request
		for range store.MaxHolders + 5 {
			readers = append(readers, reader())
			granted(t, s, readers[len(readers)-1])
		}
		r := refused(t, s, exclusive())
		if len(r.Holders) != store.MaxHolders || r.Holders[0].ID != readers[0].ID {
			t.Errorf("%d holders, want the oldest %d", len(r.Holders), store.MaxHolders)
		}
		leave(t, s, readers...)
	})
}

func TestRefusalBecauseOfWaitersListsNoHolders(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := reader(), exclusive()
		granted(t, s, a)
		waits(t, s, b)
		if r := refused(t, s, reader()); len(r.Holders) != 0 || r.Waiters != 1 || r.Place != 0 {
			t.Errorf("refusal %+v", r)
		}
		leave(t, s, a, b)
	})
}

// Many holders are found by an index, a few by looking at each.
func TestNameCanHaveThousandsOfHolders(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		const n = 5000
		reqs := make([]store.Request, n)
		for i := range reqs {
			reqs[i] = permits(1, n)
			granted(t, s, reqs[i])
		}
		refused(t, s, permits(1, n))
		for i := range reqs {
			if renew(t, s, renewal(reqs[i])).Status != store.Extended {
				t.Fatal("a live grant is gone")
			}
		}
		for i := 0; i < n; i += 2 {
			release(t, s, reqs[i])
			is(t, s.Release(t.Context(), name, reqs[i].ID, store.Keep{}), store.ErrNotHeld)
		}
		b := permits(n/2, n)
		granted(t, s, b)
		refused(t, s, permits(1, n))
		time.Sleep(ttl)
		a := exclusive()
		granted(t, s, a)
		release(t, s, a)
	})
}

func TestLongestTTLDoesNotOverflow(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.TTL = 1<<63 - 1
		time.Sleep(time.Second) // so that now + TTL overflows
		granted(t, s, a)
		if r := refused(t, s, exclusive()); r.Holders[0].Left <= 0 {
			t.Errorf("left: %v", r.Holders[0].Left)
		}
		release(t, s, a)
	})
}

func TestCallsFailOnceTheirContextHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for what, err := range everyCall(ctx, s) {
			if err != context.Canceled {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func TestExpiredNamesAreSweptByLaterRequests(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		const n = 10_000
		for range 5 {
			for i := range n {
				granted(t, s, request(fmt.Sprintf("%s %d", store.NewID(), i)))
			}
			time.Sleep(ttl)
		}
		if got := memstore.Len(s); got > 3*n {
			t.Errorf("%d names in memory, though at most %d were alive", got, n)
		}
		for range 20 * n {
			a := request(store.NewID().String())
			granted(t, s, a)
			release(t, s, a)
		}
		if got := memstore.Len(s); got > n/100 {
			t.Errorf("%d names in memory, though none is alive", got)
		}
		if got := memstore.Buckets(s); got > n/5 {
			t.Errorf("%d buckets for them", got)
		}
		for i := range 10_000 { // sweeps the rest
			a := request(fmt.Sprint(i))
			granted(t, s, a)
			release(t, s, a)
		}
	})
}

func TestErrorsExplainThemselvesAndHaveNoPrefix(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := reader()
		granted(t, s, a)
		check := func(err error) {
			t.Helper()
			if err == nil || strings.Contains(err.Error(), "holdfast:") || !strings.Contains(err.Error(), ": ") {
				t.Errorf("error %v", err)
			}
		}
		check(s.Release(t.Context(), name, a.ID, store.Keep{State: store.Done, For: 1}))
		up := renewal(a)
		up.Mode = store.Exclusive
		_, err := s.Renew(t.Context(), []store.Renewal{up})
		check(err)
		_, err = s.Acquire(t.Context(), permits(1, 2))
		check(err)
		release(t, s, a)
	})
}
