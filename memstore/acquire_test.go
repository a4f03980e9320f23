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

func TestAGrantExcludesOthersUntilItsTTLIsOver(t *testing.T) {
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

func TestTheSameIdentityAskedAgainIsTheSameGrant(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.Tokens = 7
		first := granted(t, s, a)
		time.Sleep(ttl - 1)
		if again := granted(t, s, a); again != first {
			t.Errorf("%+v, then %+v", first, again)
		}
		time.Sleep(ttl - 1) // its TTL began anew
		refused(t, s, exclusive())
		release(t, s, a)
		is(t, s.Release(t.Context(), name, a.ID, store.Keep{}), store.ErrNotHeld)
	})
}

func TestAnIdentityStaysWithItsFirstRequest(t *testing.T) {
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
		release(t, s, a)
	})
}

func TestModesGoTogetherAsUsageSays(t *testing.T) {
	for _, test := range []struct {
		held, asked store.Request
		fits        bool
	}{
		{exclusive(), exclusive(), false},
		{exclusive(), reader(), false},
		{exclusive(), permits(1, 4), false},
		{reader(), exclusive(), false},
		{reader(), reader(), true},
		{permits(3, 4), exclusive(), false},
		{permits(3, 4), permits(1, 4), true},
		{permits(3, 4), permits(2, 4), false},
	} {
		t.Run(fmt.Sprintf("%s %d beside %s %d", test.asked.Mode, test.asked.Weight, test.held.Mode, test.held.Weight), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				granted(t, s, test.held)
				if test.fits {
					granted(t, s, test.asked)
				} else {
					refused(t, s, test.asked)
				}
				leave(t, s, test.held, test.asked)
			})
		})
	}
}

func TestUsesThatNeverMixAreInvalid(t *testing.T) {
	for _, test := range []struct{ used, asked store.Request }{
		{reader(), permits(1, 4)},
		{permits(1, 4), reader()},
		{permits(1, 4), permits(1, 5)},
	} {
		t.Run(fmt.Sprintf("%s %d after %s %d", test.asked.Mode, test.asked.Limit, test.used.Mode, test.used.Limit), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				granted(t, s, test.used)
				_, err := s.Acquire(t.Context(), queued(test.asked))
				is(t, err, store.ErrInvalid)
				release(t, s, test.used)

				// The same while it only waits.
				a := exclusive()
				granted(t, s, a)
				waits(t, s, test.used)
				_, err = s.Acquire(t.Context(), queued(test.asked))
				is(t, err, store.ErrInvalid)
				leave(t, s, test.used)
				waits(t, s, test.asked)
				leave(t, s, a, test.asked)
			})
		})
	}
}

func TestAnErrorLeavesNothingQueued(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, permits(1, 4))
		c := waits(t, s, exclusive())
		a.Mode = store.Shared
		renew(t, s, renewal(a)) // steps down to what permits do not mix with
		_, err := s.Acquire(t.Context(), b)
		is(t, err, store.ErrInvalid)
		if r := refused(t, s, c); r.Place != 1 {
			t.Errorf("place %d behind nobody", r.Place)
		}
		leave(t, s, a, c)
	})
}

func TestTokensRise(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		last := int64(0)
		next := func(token int64, tokens, want int) {
			t.Helper()
			if token <= last || tokens != want {
				t.Fatalf("token %d of %d after %d, want %d of them", token, tokens, last, want)
			}
			last = token + int64(tokens) - 1
		}
		a := exclusive()
		got := granted(t, s, a)
		if got.Token != 1 {
			t.Errorf("the first token is %d", got.Token)
		}
		next(got.Token, got.Tokens, 1)
		release(t, s, a)

		a = exclusive() // after a release
		a.Tokens = 10
		got = granted(t, s, a)
		next(got.Token, got.Tokens, 10)
		time.Sleep(ttl)

		a = exclusive() // after an expiry
		got = granted(t, s, a)
		next(got.Token, got.Tokens, 1)

		r := renewal(a)
		r.Tokens = 5
		more := renew(t, s, r)
		next(more.Token, more.Tokens, 5)
		if refused(t, s, exclusive()).Holders[0].Token != more.Token {
			t.Error("the holder shows not its newest block")
		}
		r.Tokens = 0
		if more = renew(t, s, r); more.Token != 0 || more.Tokens != 0 {
			t.Errorf("unasked for tokens %+v", more)
		}
		if err := s.Break(t.Context(), name, a.ID); err != nil {
			t.Fatal(err)
		}

		a = exclusive() // after a break
		a.Tokens = 1 << 20
		got = granted(t, s, a)
		next(got.Token, got.Tokens, 4096)
		if r := refused(t, s, exclusive()); r.Highest != last {
			t.Errorf("highest is %d, want %d", r.Highest, last)
		}
		leave(t, s, a)

		a = exclusive() // after a leave
		a.Tokens = 0
		got = granted(t, s, a)
		next(got.Token, got.Tokens, 1)
		release(t, s, a)
	})
}

func TestAFloorRaisesTokens(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.Floor = 1000
		if got := granted(t, s, a); got.Token != 1001 {
			t.Errorf("token %d", got.Token)
		}
		r := renewal(a)
		r.Floor = 2000
		renew(t, s, r)
		release(t, s, a)
		a = exclusive()
		if got := granted(t, s, a); got.Token != 2001 {
			t.Errorf("token %d after a renewal with a floor of 2000", got.Token)
		}
		r = renewal(a)
		r.Floor, r.Tokens = 3000, 2
		if got := renew(t, s, r); got.Token != 3001 || got.Tokens != 2 {
			t.Errorf("renewed %+v", got)
		}
		release(t, s, a)
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

func TestARefusalNamesThoseInTheWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.Owner, a.Meta = "host/1", "import"
		got := granted(t, s, a)
		time.Sleep(10 * time.Second)
		r := refused(t, s, exclusive())
		want := store.Holder{
			ID: a.ID, Owner: "host/1", Meta: "import", Mode: store.Exclusive, Weight: 1,
			Token: got.Token, State: store.Held, Age: 10 * time.Second, Left: ttl - 10*time.Second,
		}
		if len(r.Holders) != 1 || r.Holders[0] != want {
			t.Errorf("holders %+v, want %+v", r.Holders, want)
		}
		if r.Place != 0 || r.Waiters != 0 || r.Highest != got.Token {
			t.Errorf("refusal %+v", r)
		}
		release(t, s, a)
	})
}

func TestARefusalCutsALongListOfHolders(t *testing.T) {
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

func TestARefusalBehindWaitersOnlyHasNoHolders(t *testing.T) {
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

func TestEachReaderHasAnExpiryOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		dead, alive := reader(), reader()
		granted(t, s, dead)
		granted(t, s, alive)
		time.Sleep(ttl / 2)
		renew(t, s, renewal(alive))
		time.Sleep(ttl / 2)
		if r := refused(t, s, exclusive()); len(r.Holders) != 1 || r.Holders[0].ID != alive.ID {
			t.Errorf("holders %+v", r.Holders)
		}
		release(t, s, alive)
	})
}

func TestManyHoldersOfOneNameAreTold(t *testing.T) {
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

func TestATTLOfAnyLengthIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		a.TTL = 1<<63 - 1
		time.Sleep(time.Second) // so that now + TTL is beyond what can be counted
		granted(t, s, a)
		if r := refused(t, s, exclusive()); r.Holders[0].Left <= 0 {
			t.Errorf("left: %v", r.Holders[0].Left)
		}
		release(t, s, a)
	})
}

func TestAnEndedContextEndsACall(t *testing.T) {
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

func TestNothingStaysOfNamesNobodyAsksForAgain(t *testing.T) {
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
		for i := range 10_000 { // the last few
			a := request(fmt.Sprint(i))
			granted(t, s, a)
			release(t, s, a)
		}
	})
}

func TestErrorsSayWhatToDoAndHaveNoPrefix(t *testing.T) {
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
