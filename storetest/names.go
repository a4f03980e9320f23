package storetest

import (
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

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
