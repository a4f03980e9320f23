package inspect

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/core/selection"
)

// shop has one lock in each state. The longest held lock is not the one with the most waiters, and
// so on.
var shop = []holdfast.Info{
	{Name: "a:free", Waiters: []holdfast.Waiter{{Owner: "web-9", Meta: "hurry"}}},
	{Name: "b:held", Holders: []holdfast.Holder{{Owner: "web-1", Meta: "charge", Age: 3 * time.Second, Left: 8 * time.Second}}},
	{Name: "c:done", Holders: []holdfast.Holder{{Owner: "cron", State: holdfast.StateDone, Age: time.Hour, Left: time.Minute}}},
	{Name: "d:both", Holders: []holdfast.Holder{{Owner: "web-1", Age: time.Minute, Left: 9 * time.Second}, {Owner: "web-2", Left: time.Second}}, Waiters: make([]holdfast.Waiter, 2)},
	{Name: "e:cool", Holders: []holdfast.Holder{{Owner: "cron", State: holdfast.StateCooling, Age: time.Second, Left: 2 * time.Second}}},
}

func TestTheListIsFilteredAndSorted(t *testing.T) {
	for query, want := range map[string]string{
		"":                           "a b c d e",
		"state=held":                 "b d",
		"state=done":                 "c",
		"state=waiting":              "a d",
		"state=waiting&state=done":   "a c d",
		"contains=web-1":             "b d",
		"contains=:d":                "c",
		"contains=charge":            "b",
		"contains=web-9":             "a",
		"contains=hurry":             "a",
		"contains=none":              "",
		"contains=WEB":               "",
		"contains=web&state=waiting": "a d",
		"sort=name":                  "a b c d e",
		"sort=age":                   "c d b e a",
		"sort=waiting":               "d a b c e",
		"sort=left":                  "d e b c a",
		"sort=left&state=held":       "d b",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parseFilter(q)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, lock := range f.InStates(f.Containing(shop)) {
			names = append(names, lock.Name[:1])
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
		if got := f.query(); got != "?"+url.Values(q).Encode() && query != "sort=name" {
			t.Errorf("%q: the link is %q", query, got)
		}
	}
	for i, lock := range shop {
		if want := "abcde"[i]; lock.Name[0] != want {
			t.Fatalf("the list that all browsers share was changed: %v", shop)
		}
	}
}

func TestAStateIsAddedAndRemovedByALink(t *testing.T) {
	f := filter{selection.Selection{States: []string{"held"}, Text: "x", Order: "age"}, "p", 3}
	for i, want := range []string{"?contains=x&q=p&sort=age", "?contains=x&q=p&sort=age&state=held&state=done", "?contains=x&q=p&sort=age&state=held&state=waiting"} {
		c := f.stateChoices("", shop)[i]
		if c.Link != want || c.On != (i == 0) || c.Count != []int{2, 1, 2}[i] {
			t.Errorf("%+v, want the link %s", c, want)
		}
	}
	for i, want := range []string{"?contains=x&q=p&state=held", "?contains=x&q=p&sort=age&state=held"} {
		if c := f.orderChoices("")[i]; c.Link != want || c.On != (i == 1) {
			t.Errorf("%+v, want the link %s", c, want)
		}
	}
	if f.query() != "?contains=x&page=3&q=p&sort=age&state=held" {
		t.Errorf("the filter was changed: %s", f.query())
	}
}

func TestAWrongFilterIsRefused(t *testing.T) {
	for query, want := range map[string]string{
		"sort=size":                            "want one of name, age, waiting, left",
		"state=free":                           "want one of held, done, waiting",
		"state=held&state=held":                "at most once",
		"contains=" + strings.Repeat("x", 513): "at most 512 bytes",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseFilter(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", query, err, want)
		}
	}
}
