package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestKeptRecordReplacesTheGrantForExactlyItsTime(t *testing.T) {
	for _, state := range []store.State{store.Done, store.Cooling} {
		t.Run(state.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				a := exclusive()
				a.Owner = "host/1"
				got := granted(t, s, a)
				time.Sleep(time.Second)
				keep := store.Keep{State: state, For: time.Minute}
				if err := s.Release(t.Context(), name, a.ID, keep); err != nil {
					t.Fatal(err)
				}
				is(t, s.Release(t.Context(), name, a.ID, keep), store.ErrNotHeld)
				is(t, s.Release(t.Context(), name, a.ID, store.Keep{}), store.ErrNotHeld)
				if r := renew(t, s, renewal(a)); r.Status != store.Gone {
					t.Errorf("renewed %+v", r)
				}
				leave(t, s, a) // does not end the record either

				time.Sleep(time.Minute - 1)
				want := store.Holder{
					ID: a.ID, Owner: "host/1", Mode: store.Exclusive, Weight: 1,
					Token: got.Token, State: state, Age: time.Minute - 1, Left: 1,
				}
				for _, req := range []store.Request{exclusive(), a} {
					if r := refused(t, s, req); len(r.Holders) != 1 || r.Holders[0] != want {
						t.Errorf("holders %+v, want %+v", r.Holders, want)
					}
				}
				time.Sleep(time.Nanosecond)
				b := exclusive()
				granted(t, s, b)
				release(t, s, b)
			})
		})
	}
}

func TestIdentityIsRefusedBesideItsOwnKeptRecord(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := reader(), reader()
		granted(t, s, a)
		if err := s.Release(t.Context(), name, a.ID, store.Keep{State: store.Cooling, For: time.Second}); err != nil {
			t.Fatal(err)
		}
		refused(t, s, exclusive())
		granted(t, s, b)
		release(t, s, b)
		if r := refused(t, s, a); len(r.Holders) != 1 { // the record is not a grant
			t.Errorf("refusal %+v", r)
		}
		time.Sleep(time.Second)
		granted(t, s, b)
		release(t, s, b)
	})
}

func TestInvalidKeepReleasesNothing(t *testing.T) {
	for _, test := range []struct {
		req  store.Request
		keep store.Keep
	}{
		{exclusive(), store.Keep{State: store.Done}},
		{exclusive(), store.Keep{State: store.Cooling}},
		{exclusive(), store.Keep{State: store.Cooling, For: -1}},
		{exclusive(), store.Keep{For: time.Second}},
		{exclusive(), store.Keep{For: -1}},
		{exclusive(), store.Keep{State: 9, For: time.Second}},
		{exclusive(), store.Keep{State: 9}},
		{reader(), store.Keep{State: store.Done, For: time.Second}},
		{permits(1, 2), store.Keep{State: store.Done, For: time.Second}},
	} {
		t.Run(fmt.Sprint(test.req.Mode, test.keep), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				granted(t, s, test.req)
				is(t, s.Release(t.Context(), name, test.req.ID, test.keep), store.ErrInvalid)
				release(t, s, test.req)
			})
		})
	}
}

func TestRenewalSetsTheTTLFromNowOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		time.Sleep(ttl - 1)
		r := renewal(a)
		r.TTL = time.Minute
		if got := renew(t, s, r); got != (store.Renewed{Status: store.Extended, TTL: time.Minute}) {
			t.Errorf("renewed %+v", got)
		}
		time.Sleep(time.Minute - 1)
		refused(t, s, exclusive())
		renew(t, s, r)
		r.TTL = time.Second // a shorter TTL is set as well
		renew(t, s, r)
		time.Sleep(time.Second)
		if got := renew(t, s, r); got.Status != store.Gone {
			t.Errorf("renewed %+v at the moment of its expiry", got)
		}
	})
}

func TestRenewalAllowsNoOtherChangeOfModeThanTheStepDown(t *testing.T) {
	for _, test := range []struct {
		held store.Request
		mode store.Mode
	}{
		{reader(), store.Exclusive},
		{reader(), store.Permits},
		{exclusive(), store.Permits},
		{permits(1, 2), store.Exclusive},
		{permits(1, 2), store.Shared},
		{exclusive(), 0},
		{exclusive(), 9},
	} {
		t.Run(fmt.Sprintf("%s to %s", test.held.Mode, test.mode), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memstore.Store) {
				granted(t, s, test.held)
				r := renewal(test.held)
				r.Mode = test.mode
				_, err := s.Renew(t.Context(), []store.Renewal{r})
				is(t, err, store.ErrInvalid)
				if l := list(t, s, store.Query{Name: name}); l.Locks[0].Holders[0].Mode != test.held.Mode {
					t.Errorf("now held %+v", l.Locks[0])
				}
				release(t, s, test.held)
			})
		})
	}
}
