package memstore_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func list(t testing.TB, s store.Store, q store.Query) store.Page {
	t.Helper()
	page, err := s.List(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func names(page store.Page) []string {
	var names []string
	for _, l := range page.Locks {
		names = append(names, l.Name)
	}
	return names
}

func TestListReportsHoldersAndWaitersExactly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a, b, c, d := permits(2, 4), permits(1, 4), permits(3, 4), exclusive()
		a.Owner, c.Owner, c.Meta = "a", "c", "for c"
		first := granted(t, s, a)
		time.Sleep(time.Second)
		second := granted(t, s, b)
		c = waits(t, s, c)
		time.Sleep(time.Second)
		d = waits(t, s, d)
		want := store.Page{Locks: []store.Lock{{
			Name: name, Limit: 4,
			Holders: []store.Holder{
				{ID: a.ID, Owner: "a", Mode: store.Permits, Weight: 2, Token: first.Token, Age: 2 * time.Second, Left: ttl - 2*time.Second},
				{ID: b.ID, Mode: store.Permits, Weight: 1, Token: second.Token, Age: time.Second, Left: ttl - time.Second},
			},
			Waiters: []store.Waiter{
				{ID: c.ID, Owner: "c", Meta: "for c", Mode: store.Permits, Weight: 3, Age: time.Second},
				{ID: d.ID, Mode: store.Exclusive, Weight: 1},
			},
		}}}
		for _, q := range []store.Query{{Name: name}, {}, {Prefix: "order:"}} {
			if got := list(t, s, q); !reflect.DeepEqual(got, want) {
				t.Errorf("%+v: %+v, want %+v", q, got, want)
			}
		}
		for _, q := range []store.Query{{Name: "order:"}, {Prefix: "order:43"}, {Cursor: name}} {
			if got := list(t, s, q); !reflect.DeepEqual(got, store.Page{}) {
				t.Errorf("%+v: %+v", q, got)
			}
		}
		leave(t, s, a, b, c, d)
	})
}

func TestListShowsTheLimitOfWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		a := exclusive()
		granted(t, s, a)
		b := waits(t, s, permits(1, 4))
		release(t, s, a)
		if l := list(t, s, store.Query{Name: name}).Locks[0]; l.Limit != 4 || l.Holders != nil || len(l.Waiters) != 1 {
			t.Errorf("%+v", l)
		}
		leave(t, s, b)
	})
}

func TestPagesAreSortedByNameAndHaveTheSizeAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *memstore.Store) {
		var want []string
		var reqs []store.Request
		for i := range 1000 {
			name := fmt.Sprintf("page:%d", i)
			want = append(want, name)
			reqs = append(reqs, request(name), request("other:"+name))
		}
		slices.Sort(want)
		for _, req := range reqs {
			granted(t, s, req)
		}
		for _, limit := range []int{1, 7, 100, 999, 1000, 1001, 0, -1, math.MaxInt} {
			var got []string
			q := store.Query{Prefix: "page:", Limit: limit}
			pages := 0
			for {
				page := list(t, s, q)
				pages++
				got = append(got, names(page)...)
				if q.Cursor = page.Next; q.Cursor == "" {
					break
				}
				if limit > 0 && len(page.Locks) != limit || limit <= 0 && len(page.Locks) != 100 {
					t.Fatalf("a page of %d with a limit of %d", len(page.Locks), limit)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %d: %d names, want %d in order", limit, len(got), len(want))
			}
			if limit > 0 && pages != (999+min(limit, 1000))/min(limit, 1000) {
				t.Errorf("limit %d: %d pages", limit, pages)
			}
		}
		leave(t, s, reqs...)
	})
}
