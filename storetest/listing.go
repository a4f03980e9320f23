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

// hardEndings are suffixes that some server folds, trims, quotes, splits or takes as a pattern.
var hardEndings = []string{
	"", " ", "  ", ".", "/", "//", "/.", "/..", "/a", "/a/b", "/a/", "a", "A", "a ", " a",
	"%", "%%", "%61", "_", "*", "?", "[a]", "[^b]", "{a}", "{b}", "{", "}", "{}", ":", "::",
	"'", "''", `"`, "`", `\`, `\\`, `\a`, `\*`, "$1", "#", "&", "=", "+", ";--", "<a>", "|", "~", "^", "!", "@",
	"\u00e9", "e\u0301", "\u00c9", "e", "E", // é composed, decomposed, in upper case, and without accent
	"ß", "ss", "SS", "ſ", "i", "I", "ı", "İ", "ﬁ", "fi",
	"日本", "日本語", "ｱ", "ア", "あ", "🔒", "🔑", "\u00a0", "\u200b", "\u202e", "\ufeff",
	"null", "NULL", "0", "00", "0x0", "1e0", "1",
}

// hardBeginnings are prefixes that some server treats specially.
var hardBeginnings = []string{" ", "/", "%", "*", "_", "{", "[", "{}", "-", `\`, "'", `"`, "É", "\u00a0", "🔒"}

// hardNames returns similar names of different locks.
func (s *suite) hardNames() []string {
	var names []string
	for _, ending := range hardEndings {
		names = append(names, s.base+ending)
	}
	for _, beginning := range hardBeginnings {
		names = append(names, beginning+s.base)
	}
	// Names of the maximum length, or one byte less, differ only at the end.
	long := s.base + strings.Repeat("x", store.MaxName)
	long = long[:store.MaxName-1]
	wide := s.base + strings.Repeat("é", store.MaxName)
	wide = wide[:(store.MaxName-len(s.base)-1)/2*2+len(s.base)] // whole characters, with room for one byte
	return append(names, strings.ToUpper(s.base), "{"+s.base+"}a", "{"+s.base+"}b", long, long+"1", long+"2", wide+"1", wide+"2")
}

func (c *conn) takeAll(names []string) []*claim {
	c.s.Helper()
	var claims []*claim
	for _, name := range names {
		claims = append(claims, c.exclusive(name).granted())
	}
	return claims
}

// Names, owners and metas are stored and returned byte for byte.
var namesTests = []test{
	{name: "similar names are different locks", run: func(s *suite) {
		one, two, _ := s.open2()
		claims := one.takeAll(s.hardNames())
		for _, a := range claims {
			b := two.exclusive(a.req.Name)
			b.queued(1)
			a.extended()
			w := b.wait()
			a.release()
			w.woken()
			b.granted()
			b.release()
		}
	}},
	{name: "a listing returns unusual names unchanged", needs: store.FeatureList, run: func(s *suite) {
		one, two, _ := s.open2()
		names := s.hardNames()
		for _, a := range one.takeAll(names) {
			a.alone("List", two.lookup(a.req.Name).Holders)
		}
		s.same(two.pages(store.Query{Prefix: s.base, Limit: 7}, nil), withPrefix(names, s.base))
	}},
	{name: "a prefix is not a pattern", needs: store.FeatureList, run: func(s *suite) {
		one, two, _ := s.open2()
		names := s.hardNames()
		one.takeAll(names)
		for _, ending := range hardEndings {
			s.same(two.pages(store.Query{Prefix: s.base + ending}, nil), withPrefix(names, s.base+ending))
		}
		for _, beginning := range hardBeginnings {
			prefix := beginning + s.base[:len(s.base)-1]
			s.same(two.pages(store.Query{Prefix: prefix}, nil), withPrefix(names, prefix))
		}
	}},
	{name: "unusual owners and metas are returned unchanged", run: func(s *suite) {
		one, two, _ := s.open2()
		long := strings.Repeat("é", store.MaxText/2)
		for _, text := range append(slices.Clone(hardEndings), long, strings.Repeat("x", store.MaxText)) {
			name := s.name()
			for _, texts := range [][2]string{{text, long}, {"", text}} {
				a := one.exclusive(name)
				a.req.Owner, a.req.Meta = texts[0], texts[1]
				a.granted().alone("Acquire", two.exclusive(name).refused().Holders)
				a.release()
			}
		}
	}},
}

func withPrefix(names []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}
