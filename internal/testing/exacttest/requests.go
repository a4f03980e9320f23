package exacttest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

var requestTests = []test{
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
