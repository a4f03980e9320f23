package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// List returns live holders and waiters; Break ends exactly the grant that was listed.
var listingTests = []test{
	{name: "all shared holders are listed", needs: store.FeatureList | store.FeatureShared, run: func(s *suite) {
		one, two, name := s.open2()
		claims := map[store.ID]*claim{}
		for range store.MaxHolders + 4 { // unlike a refusal, a listing is not truncated
			a := one.shared(name).granted()
			claims[a.req.ID] = a
		}
		l := two.lookup(name)
		for _, h := range l.Holders {
			if claims[h.ID] == nil {
				s.Fatalf("holder %+v is unknown or listed twice", h)
			}
			claims[h.ID].is(h)
			delete(claims, h.ID)
		}
		if len(claims) != 0 || l.Limit != 0 {
			s.Errorf("%d holders are missing; limit %d, want 0", len(claims), l.Limit)
		}
	}},
	{name: "a holder is always listed while other holders come and go", needs: store.FeatureList | store.FeatureShared, run: func(s *suite) {
		conns := []*conn{s.open(), s.open(), s.open()}
		watcher := s.open()
		name := s.name()
		stays := conns[0].shared(name).granted()
		var stop atomic.Bool
		var others sync.WaitGroup
		for i := range 2 * len(conns) {
			others.Go(func() {
				for !stop.Load() && !s.Failed() {
					k := conns[i%len(conns)].newClaim(name, store.Shared, 1, 0)
					answer, err := k.attempt()
					if err == nil && answer.Granted() {
						err = k.tryRelease(store.Keep{})
					}
					if err != nil {
						s.Error(err)
					}
				}
			})
		}
		missed, listings := 0, 0
		for start := time.Now(); listings < 300 && (listings < 50 || time.Since(start) < 3*time.Second); listings++ {
			front := conns[1].shared(name).granted()
			if listings%10 == 0 { // so that the holder that stays has others in front of it
				next := conns[0].shared(name).granted()
				stays.release()
				stays = next
			}
			if listings%2 == 1 {
				front.release()
			}
			l := watcher.lookup(name)
			if listings%2 == 0 {
				front.release()
			}
			if !slices.ContainsFunc(l.Holders, func(h store.Holder) bool { return h.ID == stays.req.ID }) {
				missed++
			}
		}
		stop.Store(true)
		others.Wait()
		if missed > 0 {
			s.Errorf("%d of %d listings do not show a holder that was there all the time", missed, listings)
		}
	}},
	{name: "pages list every name while others change", needs: store.FeatureList, run: func(s *suite) {
		one, two, _ := s.open2()
		names, held := make([]string, 100), map[string]*claim{}
		for i := range names { // of different lengths, and prefixes of each other, which paging tends to get wrong
			names[i] = fmt.Sprintf("%s/%d%s", s.base, i/3, strings.Repeat("/x", i%3))
			held[names[i]] = one.exclusive(names[i]).granted()
		}
		locks := two.pages(store.Query{Prefix: s.base, Limit: 10}, func(page []store.Lock) {
			for _, l := range page {
				if k := held[l.Name]; k != nil {
					delete(held, l.Name)
					k.release()
				}
			}
		})
		s.same(locks, names)
	}},
}

// pages reads all pages, and calls between after each page except the last.
func (c *conn) pages(q store.Query, between func(page []store.Lock)) []store.Lock {
	c.s.Helper()
	var locks []store.Lock
	for {
		page, err := c.list(q)
		if err != nil {
			c.s.Fatalf("List: %v", err)
		}
		locks = append(locks, page.Locks...)
		if page.Next == "" {
			return locks
		}
		q.Cursor = page.Next
		if between != nil {
			between(page.Locks)
		}
	}
}

func (c *conn) list(q store.Query) (page store.Page, err error) {
	err = c.s.call(func(ctx context.Context) (err error) { page, err = c.List(ctx, q); return err })
	return page, err
}

func (c *conn) lookup(name string) store.Lock {
	c.s.Helper()
	locks := c.pages(store.Query{Name: name}, nil)
	if len(locks) != 1 || locks[0].Name != name {
		c.s.Fatalf("List of %q: %+v, want that name", name, locks)
	}
	return locks[0]
}

// same expects that these names are listed, each once.
func (s *suite) same(locks []store.Lock, names []string) {
	s.Helper()
	var got []string
	for _, l := range locks {
		got = append(got, l.Name)
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(names)); !slices.Equal(got, want) {
		s.Fatalf("listed\n%q, want\n%q", got, want)
	}
}
