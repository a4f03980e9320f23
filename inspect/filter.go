package inspect

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// A filter says which locks the list shows, and in which order. Its words and rules are those of
// the command "holdfast ls".
type filter struct {
	Prefix, Text string
	States       []string // if not empty, only locks in one of these states
	Sort         string
	page         int
}

// stateWords are the states that a list can be limited to.
var stateWords = []string{"held", "done", "waiting"}

// An order is how a list is sorted. Locks with equal keys are sorted by name.
type order struct {
	word, text string
	key        func(*holdfast.Info) time.Duration // nil for the order of a listing, which is by name
}

var orders = []order{
	{"name", "name", nil},
	{"age", "longest held", func(l *holdfast.Info) time.Duration {
		return least(l, func(h holdfast.Holder) time.Duration { return -h.Age })
	}},
	{"waiting", "most waiting", func(l *holdfast.Info) time.Duration { return -time.Duration(len(l.Waiters)) }},
	{"left", "least left", func(l *holdfast.Info) time.Duration {
		return least(l, func(h holdfast.Holder) time.Duration { return h.Left })
	}},
}

// least returns the lowest value of the holders of a lock. A lock without holders comes last.
func least(l *holdfast.Info, of func(holdfast.Holder) time.Duration) time.Duration {
	lowest := time.Duration(1<<63 - 1)
	for _, h := range l.Holders {
		lowest = min(lowest, of(h))
	}
	return lowest
}

func orderOf(word string) int {
	return slices.IndexFunc(orders, func(o order) bool { return o.word == word })
}

// parseFilter returns the filter in the query of a request for the list.
func parseFilter(q url.Values) (filter, error) {
	f := filter{Prefix: q.Get("q"), Text: q.Get("contains"), States: q["state"], Sort: cmp.Or(q.Get("sort"), orders[0].word)}
	f.page, _ = strconv.Atoi(q.Get("page"))
	if len(f.Prefix) > store.MaxName || len(f.Text) > store.MaxName {
		return f, fmt.Errorf("q, contains: want at most %d bytes", store.MaxName)
	}
	for i, state := range f.States {
		if !slices.Contains(stateWords, state) || slices.Contains(f.States[:i], state) {
			return f, fmt.Errorf("state: want each of %s at most once", strings.Join(stateWords, ", "))
		}
	}
	if orderOf(f.Sort) < 0 {
		return f, fmt.Errorf("sort: want name, age, waiting or left")
	}
	return f, nil
}

// query returns the filter as a query.
func (f filter) query() string {
	q := url.Values{"state": f.States}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	set("q", f.Prefix)
	set("contains", f.Text)
	if f.Sort != orders[0].word {
		set("sort", f.Sort)
	}
	if f.page > 1 {
		set("page", strconv.Itoa(f.page))
	}
	return "?" + q.Encode()
}

// toggle returns the first page of the list with a state added or removed.
func (f filter) toggle(state string) filter {
	f.page = 0
	if i := slices.Index(f.States, state); i >= 0 {
		f.States = slices.Delete(slices.Clone(f.States), i, i+1)
	} else {
		f.States = append(slices.Clone(f.States), state)
	}
	return f
}

// containing returns the locks of a list that contain the text of the filter.
func (f filter) containing(list []holdfast.Info) []holdfast.Info {
	if f.Text == "" {
		return list
	}
	var found []holdfast.Info
	for _, l := range list {
		if strings.Contains(l.Name, f.Text) ||
			slices.ContainsFunc(l.Holders, func(h holdfast.Holder) bool {
				return strings.Contains(h.Owner, f.Text) || strings.Contains(h.Meta, f.Text)
			}) ||
			slices.ContainsFunc(l.Waiters, func(w holdfast.Waiter) bool {
				return strings.Contains(w.Owner, f.Text) || strings.Contains(w.Meta, f.Text)
			}) {
			found = append(found, l)
		}
	}
	return found
}

// show returns the locks of a list in the states of the filter, in its order. It does not change the
// list, which all browsers share.
func (f filter) show(list []holdfast.Info) []holdfast.Info {
	if len(f.States) > 0 {
		list = slices.DeleteFunc(slices.Clone(list), func(l holdfast.Info) bool {
			return !slices.ContainsFunc(f.States, func(state string) bool { return isIn(&l, state) })
		})
	}
	if key := orders[orderOf(f.Sort)].key; key != nil {
		list = slices.Clone(list)
		slices.SortStableFunc(list, func(a, b holdfast.Info) int { return cmp.Compare(key(&a), key(&b)) })
	}
	return list
}

// isIn reports whether a lock is in a state: one of stateWords, or "cooling".
func isIn(l *holdfast.Info, state string) bool {
	if state == "waiting" {
		return len(l.Waiters) > 0
	}
	return slices.ContainsFunc(l.Holders, func(h holdfast.Holder) bool { return h.State.String() == state })
}

// A choice is a link that changes the filter.
type choice struct {
	Text, Link string
	Count      int
	On         bool
}

// stateChoices returns a choice for each state, with the number of locks in it.
func (f filter) stateChoices(base string, list []holdfast.Info) (choices []choice) {
	for _, state := range stateWords {
		c := choice{Text: state, Link: base + f.toggle(state).query(), On: slices.Contains(f.States, state)}
		for i := range list {
			if isIn(&list[i], state) {
				c.Count++
			}
		}
		choices = append(choices, c)
	}
	return choices
}

// orderChoices returns a choice for each order.
func (f filter) orderChoices(base string) (choices []choice) {
	for _, o := range orders {
		to := f
		to.Sort, to.page = o.word, 0
		choices = append(choices, choice{Text: o.text, Link: base + to.query(), On: o.word == f.Sort})
	}
	return choices
}
