package suites

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Exactness tests a store that executes all calls one after the other, and so promises more than the
// contract. Sleep lets time pass on the store's clock. The store has no tokens afterwards.
func Exactness(t *testing.T, s store.Store, sleep func(d time.Duration)) {
	closedAge(t, s, sleep)
	oldestHolders(t, s, sleep)
	sortedPages(t, s, sleep)
	invalidLeaves(t, s)
	lastTokens(t, s)
}

// closedAge tests that the age of a closed name counts from the release.
func closedAge(t *testing.T, s store.Store, sleep func(d time.Duration)) {
	req := Request("closed")
	Granted(t, s, req)
	sleep(10 * time.Second)
	must(t, s.Release(t.Context(), req.Name, req.ID, store.Keep{State: store.Done, For: time.Hour}))
	sleep(time.Second)
	if h := Refused(t, s, Request(req.Name)).Holders[0]; h.Age != time.Second || h.Left != time.Hour-time.Second {
		t.Errorf("a closed name: age %v, left %v, want 1s and 59m59s", h.Age, h.Left)
	}
}

// oldestHolders tests that a refusal lists the oldest holders.
func oldestHolders(t *testing.T, s store.Store, sleep func(d time.Duration)) {
	var first store.ID
	for i := range store.MaxHolders + 4 {
		reader := Request("shared")
		reader.Mode = store.Shared
		Granted(t, s, reader)
		if i == 0 {
			first = reader.ID
		}
		sleep(time.Microsecond)
	}
	r := Refused(t, s, Request("shared"))
	if len(r.Holders) != store.MaxHolders || r.Holders[0].ID != first {
		t.Errorf("a refusal lists %d holders, want the oldest %d", len(r.Holders), store.MaxHolders)
	}
}

// invalidLeaves tests that an invalid request of a waiter leaves nothing queued.
func invalidLeaves(t *testing.T, s store.Store) {
	Granted(t, s, Request("invalid"))
	waiter := Queued("invalid")
	Refused(t, s, waiter)
	waiter.Mode = store.Shared
	if _, err := s.Acquire(t.Context(), waiter); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a waiter asks for another mode: error %v, want ErrInvalid", err)
	}
	if n := Refused(t, s, Request("invalid")).Waiters; n != 0 {
		t.Errorf("%d waiters after an invalid request, want none", n)
	}
}

// sortedPages tests that pages are sorted by name and as long as requested.
func sortedPages(t *testing.T, s store.Store, sleep func(d time.Duration)) {
	const n = 150
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("pages:%d", i))
		Granted(t, s, Request(want[i]))
		sleep(time.Microsecond)
	}
	slices.Sort(want)
	for limit, size := range map[int]int{1: 1, 7: 7, n - 1: n - 1, n: n, n + 1: n, 0: 100, -1: 100, math.MaxInt: n} {
		q := store.Query{Prefix: "pages:", Limit: limit}
		for page := range slices.Chunk(want, size) {
			listed, err := s.List(t.Context(), q)
			must(t, err)
			var got []string
			for _, l := range listed.Locks {
				got = append(got, l.Name)
			}
			if !slices.Equal(got, page) {
				t.Errorf("limit %d: a page of %q, want %q", limit, got, page)
			}
			q.Cursor = listed.Next
		}
		if q.Cursor != "" {
			t.Errorf("limit %d: a page after the last name", limit)
		}
	}
}

// lastTokens tests that tokens end at 2^53-1.
func lastTokens(t *testing.T, s store.Store) {
	req := Request("tokens")
	req.Floor = store.MaxToken
	invalid := func(req store.Request) {
		t.Helper()
		if _, err := s.Acquire(t.Context(), req); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("beyond the last token: %v, want ErrInvalid", err)
		}
	}
	invalid(req)
	held := Request("held")
	Granted(t, s, held)
	floor := Renewal(held)
	floor.Floor = store.MaxToken
	out, err := s.Renew(t.Context(), []store.Renewal{floor, Renewal(held)})
	if err != nil || !errors.Is(out[0].Err, store.ErrInvalid) || out[1].Status != store.Extended {
		t.Errorf("Renew: %+v, %v, want an ErrInvalid for the floor only", out, err)
	}
	req.Floor, req.Tokens = store.MaxToken-2, 10
	if a := Granted(t, s, req); a.Token != store.MaxToken-1 || a.Tokens != 2 {
		t.Errorf("granted %+v, want the last two tokens", a)
	}
	AllExtended(t, s, Renewal(req)) // needs no token
	Release(t, s, req)
	invalid(Request(req.Name))
}
