package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// List returns live holders and waiters; Break ends exactly the grant that was listed.
var listingTests = []test{
	{name: "all shared holders are listed", needs: store.FeatureList | store.FeatureShared, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
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
			claims[h.ID].is(h, store.Held)
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
		stop, ended := make(chan struct{}), make(chan error, 2*len(conns))
		for i := range cap(ended) {
			c := conns[i%len(conns)]
			go func() {
				for {
					select {
					case <-stop:
						ended <- nil
						return
					default:
					}
					ctx, cancel := s.bounded()
					id := store.NewID()
					answer, err := c.Acquire(ctx, store.Request{Name: name, ID: id, Mode: store.Shared, Weight: 1, TTL: s.long, Tokens: 1})
					if err == nil && answer.Granted() {
						err = c.Release(ctx, name, id, store.Keep{})
					}
					cancel()
					if err != nil {
						ended <- err
						return
					}
				}
			}()
		}
		missed, listings := 0, 0
		for start := time.Now(); listings < 300 && (listings < 50 || time.Since(start) < 3*time.Second); listings++ {
			i := listings
			front := conns[1].shared(name).granted()
			if i%10 == 0 { // so that the holder that stays has others in front of it
				next := conns[0].shared(name).granted()
				stays.release()
				stays = next
			}
			if i%2 == 1 {
				front.release()
			}
			l := watcher.lookup(name)
			if i%2 == 0 {
				front.release()
			}
			if !slices.ContainsFunc(l.Holders, func(h store.Holder) bool { return h.ID == stays.req.ID }) {
				missed++
			}
		}
		close(stop)
		for range cap(ended) {
			if err := <-ended; err != nil {
				s.Error(err)
			}
		}
		if missed > 0 {
			s.Errorf("%d of %d listings do not show a holder that was there all the time", missed, listings)
		}
	}},
	{name: "waiters are listed in order, the next one first", needs: store.FeatureList | store.FeatureQueue, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		a := one.exclusive(name).granted()
		start := time.Now()
		var waiters []*claim
		for i := range 4 {
			waiters = append(waiters, []*conn{one, two}[i%2].exclusive(name).queued(i+1))
		}
		joined := time.Now()
		check := func() {
			s.Helper()
			low := time.Since(joined)
			l := two.lookup(name)
			if len(l.Holders) == 1 && l.Holders[0].ID == waiters[0].req.ID {
				waiters = waiters[1:] // granted before it asked
			}
			if len(l.Waiters) != len(waiters) {
				s.Fatalf("%d waiters are listed, want %d", len(l.Waiters), len(waiters))
			}
			for i, w := range l.Waiters {
				req := waiters[i].req
				want := store.Waiter{ID: req.ID, Owner: req.Owner, Meta: req.Meta, Mode: req.Mode, Weight: req.Weight, Age: w.Age}
				if w != want {
					s.Fatalf("waiter %d:\n got %+v\nwant %+v", i+1, w, want)
				}
				s.between("Age", w.Age, low, time.Since(start))
			}
		}
		check()
		time.Sleep(waiters[0].again / 2)
		for i, w := range waiters {
			w.queued(i + 1) // does not reset their age
		}
		check()
		waiters[2].leave()
		waiters = append(waiters[:2], waiters[3])
		check()
		a.release() // the queue is listed although the name has no holder
		check()
	}},
	{name: "a query by name is exact, and a query by prefix finds all names", needs: store.FeatureList, run: func(s *suite) {
		one, two := s.open2()
		name := s.name()
		names := []string{name, name + "/a", name + "/ab", name + "x"}
		for _, n := range names {
			one.exclusive(n).granted()
		}
		one.exclusive(s.name()).granted()
		two.listsExactly(store.Query{Name: name}, names[:1])
		two.listsExactly(store.Query{Prefix: name}, names)
		two.listsExactly(store.Query{Prefix: name + "/"}, names[1:3])
		two.listsExactly(store.Query{Prefix: name + "/abc"}, nil)
		two.listsExactly(store.Query{Name: name + "/abc"}, nil)
		two.listsExactly(store.Query{Name: name + "/a", Prefix: name}, names[1:2]) // the name takes precedence
	}},
	{name: "pages list every name once", needs: store.FeatureList, run: func(s *suite) {
		one, two := s.open2()
		names := one.hold(s, 250)
		for _, limit := range []int{0, 1, 20, 249, 250, 1000} {
			two.listsExactly(store.Query{Prefix: s.base, Limit: limit}, names)
		}
	}},
	{name: "pages list every name while others change", needs: store.FeatureList, run: func(s *suite) {
		one, two := s.open2()
		names := one.hold(s, 100)
		held := map[string]*claim{}
		for _, k := range s.claims {
			held[k.req.Name] = k
		}
		gone := map[string]bool{}
		locks := two.pages(store.Query{Prefix: s.base, Limit: 10}, func(page []store.Lock) {
			for _, l := range page {
				if k := held[l.Name]; k != nil && !gone[l.Name] {
					gone[l.Name] = true
					k.release()
				}
			}
		})
		seen := map[string]bool{}
		for _, l := range locks {
			seen[l.Name] = true
		}
		for _, name := range names {
			if !seen[name] {
				s.Errorf("%q was held all the time but is not listed", name)
			}
		}
	}},
}

// hold takes n names that start with s.base. They have different lengths and are prefixes of
// each other, which paging tends to get wrong.
func (c *conn) hold(s *suite, n int) []string {
	s.Helper()
	claims := make([]*claim, n)
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("%s/%d%s", s.base, i/3, strings.Repeat("/x", i%3))
		claims[i] = c.exclusive(names[i])
	}
	s.parallel(n, 8, func(i int) error {
		ctx, cancel := s.bounded()
		defer cancel()
		ans, err := claims[i].try(ctx)
		if err == nil && !ans.Granted() {
			err = fmt.Errorf("%q is refused", names[i])
		}
		return err
	})
	return names
}

// list reads all pages of a query.
func (c *conn) list(q store.Query) []store.Lock {
	c.s.Helper()
	return c.pages(q, nil)
}

// pages reads all pages, and calls between after each page except the last.
func (c *conn) pages(q store.Query, between func(page []store.Lock)) []store.Lock {
	c.s.Helper()
	var locks []store.Lock
	for {
		ctx, cancel := c.s.bounded()
		page, err := c.List(ctx, q)
		cancel()
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

// lookup lists one name and expects to find it.
func (c *conn) lookup(name string) store.Lock {
	c.s.Helper()
	locks := c.list(store.Query{Name: name})
	if len(locks) != 1 || locks[0].Name != name {
		c.s.Fatalf("List of %q: %+v, want that name", name, locks)
	}
	return locks[0]
}

// listsExactly expects that a query finds these names, each once.
func (c *conn) listsExactly(q store.Query, want []string) {
	c.s.Helper()
	c.s.same(c.list(q), want)
}

func (s *suite) same(locks []store.Lock, names []string) {
	s.Helper()
	var got []string
	for _, l := range locks {
		got = append(got, l.Name)
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(names))
	if slices.Equal(got, want) {
		return
	}
	count := map[string]int{}
	for _, name := range got {
		count[name]++
	}
	for _, name := range want {
		count[name]--
	}
	for name, n := range count {
		if n != 0 {
			s.Errorf("%q is listed %+d times too often", name, n)
		}
	}
	s.FailNow()
}
