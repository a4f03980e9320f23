package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/core/selection"
	"github.com/holdfast-lock/holdfast/store"
)

// A filter says which locks the list shows, and in which order.
type filter struct {
	selection.Selection
	Prefix string
	page   int
}

func parseFilter(q url.Values) (filter, error) {
	f := filter{Prefix: q.Get("q")}
	f.States, f.Text, f.Order = q["state"], q.Get("contains"), cmp.Or(q.Get("sort"), selection.Orders[0].Word)
	f.page, _ = strconv.Atoi(q.Get("page"))
	if len(f.Prefix) > store.MaxName || len(f.Text) > store.MaxName {
		return f, fmt.Errorf("q, contains: want at most %d bytes", store.MaxName)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(f.States)))) < len(f.States) {
		return f, errors.New("state: want each state at most once")
	}
	return f, f.Check()
}

func (f filter) query() string {
	q := url.Values{"state": f.States}
	set := func(key, value string) {
		if value != "" {
			q.Set(key, value)
		}
	}
	set("q", f.Prefix)
	set("contains", f.Text)
	if f.Order != selection.Orders[0].Word {
		set("sort", f.Order)
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

// A choice is a link that changes the filter.
type choice struct {
	Text, Link string
	Count      int
	On         bool
}

func (f filter) stateChoices(base string, list []holdfast.Info) (choices []choice) {
	for _, state := range selection.States {
		choices = append(choices, choice{state, base + f.toggle(state).query(), selection.Count(list, state), slices.Contains(f.States, state)})
	}
	return choices
}

func (f filter) orderChoices(base string) (choices []choice) {
	for _, o := range selection.Orders {
		to := f
		to.Order, to.page = o.Word, 0
		choices = append(choices, choice{Text: o.Text, Link: base + to.query(), On: o.Word == f.Order})
	}
	return choices
}
