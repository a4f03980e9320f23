package exacttest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

func requestTests() []test {
	tests := []test{
		{"a repeated request must not differ from the first", func(s *suite) {
			heavier := s.granted("2/4")
			exclusive := heavier
			exclusive.Mode, exclusive.Weight, exclusive.Limit = store.Exclusive, 1, 0
			heavier.Weight = 3
			waiter := s.queued("3/4")
			waiter.Weight = 4
			for _, req := range []store.Request{heavier, exclusive, waiter} {
				s.invalid(req)
			}
		}},
		{"an identity is refused while its own record keeps the name closed", func(s *suite) {
			a := s.granted("shared")
			s.keep(a, store.Cooling, time.Second)
			s.release(s.granted("shared"))
			if r := s.refused(a); len(r.Holders) != 1 {
				s.Errorf("refusal %+v, want the record that keeps the name closed as the holder", r)
			}
			s.Sleep(time.Second)
			s.acquire(a)
		}},
		{"the age of a closed name counts from the release", func(s *suite) {
			req := s.granted("exclusive")
			s.Sleep(10 * time.Second)
			s.keep(req, store.Done, time.Hour)
			s.Sleep(time.Second)
			if h := s.refused(s.request("exclusive")).Holders[0]; h.Age != time.Second || h.Left != time.Hour-time.Second {
				s.Errorf("age %v, left %v, want 1s and 59m59s", h.Age, h.Left)
			}
		}},
		{"a refusal lists the oldest holders", func(s *suite) {
			first := s.granted("shared")
			for range store.MaxHolders + 4 {
				s.Sleep(time.Microsecond)
				s.granted("shared")
			}
			r := s.refused(s.request("exclusive"))
			if len(r.Holders) != store.MaxHolders || r.Holders[0].ID != first.ID {
				s.Errorf("%d holders, want the oldest %d", len(r.Holders), store.MaxHolders)
			}
		}},
		{"a refusal because of a waiter lists no holder", func(s *suite) {
			s.granted("shared")
			s.queued("exclusive")
			if r := s.refused(s.request("shared")); len(r.Holders) != 0 || r.Waiters != 1 || r.Place != 0 {
				s.Errorf("refusal %+v", r)
			}
		}},
		{"the longest TTL does not overflow", func(s *suite) {
			req := s.request("exclusive")
			req.TTL = math.MaxInt64
			s.Sleep(time.Second)
			s.acquire(req)
			if r := s.refused(s.request("exclusive")); len(r.Holders) != 1 || r.Holders[0].Left <= ttl {
				s.Errorf("refusal %+v, want the holder", r)
			}
		}},
	}
	for _, modes := range [][2]string{{"shared", "1/4"}, {"1/4", "shared"}, {"1/4", "1/5"}} {
		tests = append(tests, test{fmt.Sprintf("%s is invalid behind a waiter for %s", modes[1], modes[0]), func(s *suite) {
			s.granted("exclusive")
			waiter, req := s.queued(modes[0]), s.request(modes[1])
			req.Queue = true
			s.invalid(req)
			s.leave(waiter)
			s.queued(modes[1])
		}})
	}
	for _, change := range []struct {
		from string
		to   store.Mode
	}{
		{"shared", store.Exclusive},
		{"shared", store.Permits},
		{"exclusive", store.Permits},
		{"1/2", store.Exclusive},
		{"1/2", store.Shared},
		{"exclusive", 0},
		{"exclusive", 9},
	} {
		tests = append(tests, test{fmt.Sprintf("a renewal cannot change %s to %s", change.from, change.to), func(s *suite) {
			req := s.granted(change.from)
			s.is(s.renew(req, change.to, ttl), store.ErrInvalid)
			if l := s.list(store.Query{Name: s.name}).Locks[0]; l.Holders[0].Mode != req.Mode {
				s.Errorf("now held %+v", l)
			}
		}})
	}
	for _, bad := range []struct {
		mode string
		keep store.Keep
	}{
		{"exclusive", store.Keep{State: store.Done}},
		{"exclusive", store.Keep{State: store.Cooling, For: -1}},
		{"exclusive", store.Keep{For: time.Second}},
		{"exclusive", store.Keep{State: 9, For: time.Second}},
		{"shared", store.Keep{State: store.Done, For: time.Second}},
		{"1/2", store.Keep{State: store.Done, For: time.Second}},
	} {
		tests = append(tests, test{fmt.Sprintf("keeping %s as %v for %v is invalid", bad.mode, bad.keep.State, bad.keep.For), func(s *suite) {
			req := s.granted(bad.mode)
			s.is(s.Release(s.Context(), s.name, req.ID, bad.keep), store.ErrInvalid)
			s.release(req)
		}})
	}
	return tests
}

var listTests = []test{
	{"a listing shows the limit of waiters", func(s *suite) {
		holder := s.granted("exclusive")
		s.queued("1/4")
		s.release(holder)
		if l := s.list(store.Query{Name: s.name}).Locks[0]; l.Limit != 4 || l.Holders != nil || len(l.Waiters) != 1 {
			s.Errorf("listed %+v", l)
		}
	}},
	{"pages are sorted by name and as long as requested", func(s *suite) {
		const n = 150
		prefix := s.name
		var want []string
		for i := range n {
			s.name = fmt.Sprintf("%s:%d", prefix, i)
			want = append(want, s.name)
			s.granted("exclusive")
			s.Sleep(time.Microsecond)
		}
		slices.Sort(want)
		for limit, size := range map[int]int{1: 1, 7: 7, n - 1: n - 1, n: n, n + 1: n, 0: 100, -1: 100, math.MaxInt: n} {
			var got []string
			q := store.Query{Prefix: prefix, Limit: limit}
			for pages := 1; ; pages++ {
				page := s.list(q)
				for _, l := range page.Locks {
					got = append(got, l.Name)
				}
				if q.Cursor = page.Next; q.Cursor == "" {
					if pages != (n+size-1)/size {
						s.Errorf("limit %d: %d pages", limit, pages)
					}
					break
				}
				if len(page.Locks) != size {
					s.Fatalf("limit %d: a page of %d", limit, len(page.Locks))
				}
			}
			if !slices.Equal(got, want) {
				s.Errorf("limit %d: names %q, want %q", limit, got, want)
			}
		}
	}},
}

func (s *suite) list(q store.Query) store.Page {
	s.Helper()
	page, err := s.List(s.Context(), q)
	s.check(err)
	return page
}

func tokensEnd(s *suite) {
	req := s.request("exclusive")
	req.Floor = store.MaxToken
	s.invalid(req)
	req.Floor, req.Tokens = store.MaxToken-2, 10
	if a := s.acquire(req); a.Token != store.MaxToken-1 || a.Tokens != 2 {
		s.Errorf("granted %+v, want the last two tokens", a)
	}
	s.check(s.renew(req, store.Exclusive, ttl)) // needs no token
	s.release(req)
	s.invalid(s.request("exclusive"))
}
