package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestAReleaseEndsOnlyItsOwnGrant(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := exclusive(), exclusive()
		is(t, s.Release(t.Context(), name, a.ID, store.Keep{}), store.ErrNotHeld)
		granted(t, s, a)
		is(t, s.Release(t.Context(), name, b.ID, store.Keep{}), store.ErrNotHeld)
		b = waits(t, s, b)
		is(t, s.Release(t.Context(), name, b.ID, store.Keep{}), store.ErrNotHeld) // it only waits
		is(t, s.Break(t.Context(), name, b.ID), store.ErrNotHeld)
		time.Sleep(ttl)
		is(t, s.Release(t.Context(), name, a.ID, store.Keep{}), store.ErrNotHeld) // expired
		is(t, s.Break(t.Context(), name, a.ID), store.ErrNotHeld)
	})
}

func TestAKeptRecordTakesThePlaceOfTheGrant(t *testing.T) {
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
				leave(t, s, a) // nor does that end it: the grant is over

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

func TestABreakEndsAClosure(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		if err := s.Release(t.Context(), name, a.ID, store.Keep{State: store.Done, For: time.Hour}); err != nil {
			t.Fatal(err)
		}
		b := waits(t, s, exclusive())
		c := waiting(t, s, b)
		if err := s.Break(t.Context(), name, a.ID); err != nil {
			t.Fatal(err)
		}
		c.wakes(t)
		granted(t, s, b)
		release(t, s, b)
	})
}

func TestACoolingReaderLetsReadersIn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := reader(), reader()
		granted(t, s, a)
		if err := s.Release(t.Context(), name, a.ID, store.Keep{State: store.Cooling, For: time.Second}); err != nil {
			t.Fatal(err)
		}
		refused(t, s, exclusive())
		granted(t, s, b)
		release(t, s, b)
		if r := refused(t, s, a); len(r.Holders) != 1 { // its own record is not its grant
			t.Errorf("refusal %+v", r)
		}
		time.Sleep(time.Second)
		granted(t, s, b)
		release(t, s, b)
	})
}

func TestAKeepWithoutSenseIsInvalidAndReleasesNothing(t *testing.T) {
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

func TestARenewalExtendsFromNow(t *testing.T) {
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
		r.TTL = time.Second // shorter works too
		renew(t, s, r)
		time.Sleep(time.Second)
		if got := renew(t, s, r); got.Status != store.Gone {
			t.Errorf("renewed %+v at the moment it was over", got)
		}
	})
}

func TestARenewalNeverRevives(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		released, expired, broken, left, alive, waits := request("a"), request("b"), request("c"), request("d"), request("e"), request("e")
		for _, req := range []store.Request{released, expired, broken, left, alive} {
			granted(t, s, req)
		}
		time.Sleep(ttl / 2)
		renew(t, s, renewal(alive))
		time.Sleep(ttl / 2)
		for _, req := range []store.Request{released, broken, left} {
			leave(t, s, req)
			granted(t, s, req)
		}
		release(t, s, released)
		leave(t, s, left)
		if err := s.Break(t.Context(), "c", broken.ID); err != nil {
			t.Fatal(err)
		}
		waits.Queue = true
		refused(t, s, waits)
		var grants []store.Renewal
		for _, req := range []store.Request{released, expired, alive, broken, left, waits} {
			grants = append(grants, renewal(req))
		}
		out, err := s.Renew(t.Context(), grants)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range out {
			want := store.Renewed{Status: store.Gone}
			if i == 2 {
				want = store.Renewed{Status: store.Extended, TTL: ttl}
			}
			if got != want {
				t.Errorf("outcome %d is %+v, want %+v", i, got, want)
			}
		}
		leave(t, s, alive, waits)
	})
}

func TestAWriterStepsDownToAReader(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		got := granted(t, s, a)
		b, c, w := waits(t, s, reader()), waits(t, s, reader()), waits(t, s, exclusive())
		a.Mode = store.Shared
		if r := renew(t, s, renewal(a)); r.Status != store.Extended {
			t.Errorf("renewed %+v", r)
		}
		renew(t, s, renewal(a)) // and stays one
		granted(t, s, b)
		granted(t, s, c)
		if r := refused(t, s, w); len(r.Holders) != 3 || r.Holders[0].Mode != store.Shared || r.Holders[0].Token != got.Token {
			t.Errorf("refusal %+v", r)
		}
		leave(t, s, a, b, c, w)
	})
}

func TestNoOtherChangeOfModeIsPossible(t *testing.T) {
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
