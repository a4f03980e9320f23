package memstore_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

var seed = flag.Uint64("seed", 0, "run TestTheStoreDoesWhatThePlainModelDoes with this seed only")

// A model is one name written as plainly as possible: slices, looked through each time.
type model struct {
	holders []modelHolder
	waiters []modelWaiter
}

type modelHolder struct {
	req   store.Request
	state store.State
	token int64
	ends  time.Time
}

type modelWaiter struct {
	req   store.Request
	asked time.Time
}

func (m *model) settle() {
	m.holders = slices.DeleteFunc(m.holders, func(h modelHolder) bool { return !time.Now().Before(h.ends) })
	m.waiters = slices.DeleteFunc(m.waiters, func(w modelWaiter) bool { return time.Since(w.asked) > heartbeat })
}

func (m *model) holder(id store.ID) int {
	return slices.IndexFunc(m.holders, func(h modelHolder) bool { return h.req.ID == id })
}

func (m *model) waiter(id store.ID) int {
	return slices.IndexFunc(m.waiters, func(w modelWaiter) bool { return w.req.ID == id })
}

func (m *model) admits(req store.Request) bool {
	var u store.Usage
	for _, h := range m.holders {
		u.Add(h.req.Mode, h.req.Weight, h.req.Limit)
	}
	return u.Admits(req.Mode, req.Weight, req.Limit)
}

// expect is what an Acquire does: "invalid", "again" (the same grant), "granted" or
// "refused" with a place in the queue.
func (m *model) expect(req store.Request) (what string, place int) {
	i, w := m.holder(req.ID), m.waiter(req.ID)
	if i >= 0 && m.holders[i].state == store.Held {
		if h := m.holders[i].req; h.Mode != req.Mode {
			return "invalid", 0
		}
		m.holders[i].ends = time.Now().Add(req.TTL)
		return "again", 0
	}
	leave := func() {
		if w >= 0 {
			m.waiters = slices.Delete(m.waiters, w, w+1)
		}
	}
	if w >= 0 && m.waiters[w].req.Mode != req.Mode {
		leave()
		return "invalid", 0
	}
	for _, h := range m.holders {
		if store.Mixes(name, req.Mode, req.Limit, h.req.Mode, h.req.Limit) != nil {
			leave()
			return "invalid", 0
		}
	}
	for _, o := range m.waiters {
		if store.Mixes(name, req.Mode, req.Limit, o.req.Mode, o.req.Limit) != nil {
			leave()
			return "invalid", 0
		}
	}
	if i < 0 && m.admits(req) && (w == 0 || len(m.waiters) == 0) {
		leave()
		m.holders = append(m.holders, modelHolder{req: req, ends: time.Now().Add(req.TTL)})
		return "granted", 0
	}
	switch {
	case !req.Queue:
		leave()
		return "refused", 0
	case w >= 0:
		m.waiters[w].asked = time.Now()
		return "refused", w + 1
	}
	m.waiters = append(m.waiters, modelWaiter{req, time.Now()})
	return "refused", len(m.waiters)
}

// lets reports whether the first waiter should be awake. The identity of a kept record is
// never let in beside it.
func (m *model) lets() bool {
	return len(m.waiters) > 0 && m.admits(m.waiters[0].req) && m.holder(m.waiters[0].req.ID) < 0
}

func TestTheStoreDoesWhatThePlainModelDoes(t *testing.T) {
	if *seed != 0 {
		compare(t, *seed)
		return
	}
	for range 60 {
		seed := rand.Uint64()
		if t.Run(fmt.Sprint(seed), func(t *testing.T) { compare(t, seed) }); t.Failed() {
			t.Fatalf("run again with -seed %d", seed)
		}
	}
}

func compare(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		s := memstore.New()
		defer s.Close()
		m := &model{}
		last := int64(0)
		kinds := [][]store.Request{
			{exclusive()},
			{exclusive(), reader(), reader()},
			{exclusive(), permits(1, 4), permits(2, 4), permits(3, 4)},
			{exclusive(), reader(), permits(1, 2), permits(1, 3)},
			{reader(), reader(), reader(), reader(), exclusive()},
		}[rnd.IntN(5)]
		known := make([]store.Request, 4+rnd.IntN(30)) // more than are looked through one by one
		for i := range known {
			known[i] = kinds[rnd.IntN(len(kinds))]
			known[i].ID = store.NewID()
			known[i].TTL = time.Duration(1+rnd.IntN(8)) * time.Second
		}
		for step := range 400 {
			i := rnd.IntN(len(known))
			req := known[i]
			if rnd.IntN(3) == 0 { // else mostly waiters would ask in vain
				if m.settle(); len(m.waiters) > 0 {
					req = m.waiters[0].req
				} else if len(m.holders) > 0 {
					req = m.holders[rnd.IntN(len(m.holders))].req
				}
			}
			var did string
			switch op := rnd.IntN(20); {
			case op < 10:
				req.Queue = rnd.IntN(4) > 0
				req.Tokens = rnd.IntN(3)
				m.settle()
				want, place := m.expect(req)
				did = fmt.Sprintf("acquire %s, want %s at %d", req.Mode, want, place)
				a, err := s.Acquire(t.Context(), req)
				switch {
				case want == "invalid":
					if !errors.Is(err, store.ErrInvalid) {
						t.Fatalf("step %d: %s: %+v, %v", step, did, a, err)
					}
				case err != nil, a.Granted() != (want != "refused"):
					t.Fatalf("step %d: %s: %+v, %v", step, did, a, err)
				case want == "again":
					if h := m.holders[m.holder(req.ID)]; a.Token != h.token {
						t.Fatalf("step %d: %s: token %d, want %d", step, did, a.Token, h.token)
					}
				case want == "granted":
					if a.Token <= last {
						t.Fatalf("step %d: %s: token %d after %d", step, did, a.Token, last)
					}
					m.holders[m.holder(req.ID)].token = a.Token
					last = a.Token + int64(a.Tokens) - 1
				case a.Refusal.Place != place:
					t.Fatalf("step %d: %s: place %d", step, did, a.Refusal.Place)
				default:
					var left time.Duration = heartbeat
					for _, h := range m.holders {
						left = min(left, time.Until(h.ends))
					}
					for _, w := range m.waiters[:max(place, 1)-1] {
						left = min(left, time.Until(w.asked.Add(heartbeat+1)))
					}
					if a.Refusal.Again > max(left, time.Millisecond) {
						t.Fatalf("step %d: %s: again within %v, but something may end in %v", step, did, a.Refusal.Again, left)
					}
				}
			case op < 13:
				did = "release"
				keep := store.Keep{}
				if rnd.IntN(4) == 0 {
					keep = store.Keep{State: store.Cooling, For: time.Duration(1+rnd.IntN(5)) * time.Second}
				}
				m.settle()
				err := s.Release(t.Context(), name, req.ID, keep)
				if h := m.holder(req.ID); h < 0 || m.holders[h].state != store.Held {
					is(t, err, store.ErrNotHeld)
				} else if is(t, err, nil); keep.For > 0 {
					m.holders[h].state, m.holders[h].ends = keep.State, time.Now().Add(keep.For)
				} else {
					m.holders = slices.Delete(m.holders, h, h+1)
				}
			case op < 14:
				did = "break"
				m.settle()
				err := s.Break(t.Context(), name, req.ID)
				if h := m.holder(req.ID); h < 0 {
					is(t, err, store.ErrNotHeld)
				} else {
					is(t, err, nil)
					m.holders = slices.Delete(m.holders, h, h+1)
				}
			case op < 16:
				did = "leave"
				m.settle()
				leave(t, s, req)
				if h := m.holder(req.ID); h >= 0 && m.holders[h].state == store.Held {
					m.holders = slices.Delete(m.holders, h, h+1)
				}
				if w := m.waiter(req.ID); w >= 0 {
					m.waiters = slices.Delete(m.waiters, w, w+1)
				}
			case op < 18:
				did = "renew"
				m.settle()
				r := renewal(req)
				h := m.holder(req.ID)
				alive := h >= 0 && m.holders[h].state == store.Held
				if alive {
					r.Mode = m.holders[h].req.Mode
					if r.Mode == store.Exclusive && rnd.IntN(3) == 0 {
						r.Mode = store.Shared
					}
					m.holders[h].req.Mode, m.holders[h].ends = r.Mode, time.Now().Add(r.TTL)
				}
				if got := renew(t, s, r); (got.Status == store.Extended) != alive {
					t.Fatalf("step %d: renewed %+v", step, got)
				}
			default:
				did = "sleep"
				time.Sleep([]time.Duration{1, time.Millisecond, time.Second, heartbeat}[rnd.IntN(4)])
			}
			m.settle()
			same(t, s, m, fmt.Sprintf("step %d: %s", step, did))
		}
		time.Sleep(time.Minute)
		if page := list(t, s, store.Query{Name: name}); page.Locks != nil || memstore.Len(s) != 0 {
			t.Errorf("%+v stays", page)
		}
	})
}

// same compares what is alive, and checks that nobody sleeps who is next.
func same(t *testing.T, s store.Store, m *model, step string) {
	t.Helper()
	var got, want store.Lock
	if page := list(t, s, store.Query{Name: name}); page.Locks != nil {
		got = page.Locks[0]
	}
	for _, h := range m.holders {
		want.Holders = append(want.Holders, store.Holder{
			ID: h.req.ID, Mode: h.req.Mode, Weight: h.req.Weight,
			Token: h.token, State: h.state, Left: time.Until(h.ends),
		})
	}
	for _, w := range m.waiters {
		want.Waiters = append(want.Waiters, store.Waiter{ID: w.req.ID, Mode: w.req.Mode, Weight: w.req.Weight})
	}
	for i := range got.Holders {
		got.Holders[i].Age = 0
	}
	for i := range got.Waiters {
		got.Waiters[i].Age = 0
	}
	if !reflect.DeepEqual(got.Holders, want.Holders) || !reflect.DeepEqual(got.Waiters, want.Waiters) {
		t.Fatalf("%s: %+v, want %+v", step, got, want)
	}
	if m.lets() {
		select {
		case err := <-waiting(t, s, m.waiters[0].req).done:
			is(t, err, nil)
		default:
			t.Fatalf("%s: the next sleeps: %+v", step, got)
		}
	}
}
