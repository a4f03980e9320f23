package inspect

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	maxRecords = 1000 // names with a history
	maxEvents  = 100  // of a name
	maxTimes   = 100  // of a name
)

// A history is what was seen of names by comparing listings. What begins and ends between two
// listings is not seen.
type history struct {
	records map[string]*record
	order   []string // of records, the one that changed first first
}

// A record is the history of one name.
type record struct {
	Events []event         // the newest last
	Held   []time.Duration // by holders that are gone, the newest last
	Waited []time.Duration // by waiters that became holders
}

// An event is a change between two listings.
type event struct {
	At    time.Time
	What  string
	Owner string
	Token int64
}

// note compares two listings. Before is nil for the first one.
func (h *history) note(before, after *snapshot) {
	if before == nil || before.err != nil {
		return
	}
	seen := make(map[string]bool, len(after.locks))
	for _, lock := range after.locks {
		seen[lock.Name] = true
		old, _ := before.find(lock.Name)
		h.compare(&old, &lock, after.at)
	}
	if after.cut || before.cut {
		return // a name that is missing may only be beyond the end
	}
	for _, old := range before.locks {
		if !seen[old.Name] {
			h.compare(&old, &holdfast.Info{Name: old.Name}, after.at)
		}
	}
}

// compare notes what has changed at one name.
func (h *history) compare(old, lock *holdfast.Info, at time.Time) {
	var events []event
	var held, waited []time.Duration
	for _, b := range old.Holders {
		if b.State == holdfast.StateHeld && !slices.ContainsFunc(lock.Holders, func(a holdfast.Holder) bool { return a.ID == b.ID && a.State == b.State }) {
			events = append(events, event{at, "released or expired", b.Owner, b.Token})
			held = append(held, b.Age)
		}
	}
	for _, a := range lock.Holders {
		if slices.ContainsFunc(old.Holders, func(b holdfast.Holder) bool { return a.ID == b.ID && a.State == b.State }) {
			continue
		}
		what := "acquired"
		switch a.State {
		case holdfast.StateDone:
			what = "closed: done"
		case holdfast.StateCooling:
			what = "closed: minimum hold"
		}
		events = append(events, event{at, what, a.Owner, a.Token})
		if i := slices.IndexFunc(old.Waiters, func(b holdfast.Waiter) bool { return a.ID == b.ID }); i >= 0 {
			waited = append(waited, old.Waiters[i].Age)
		}
	}
	for _, a := range lock.Waiters {
		if !slices.ContainsFunc(old.Waiters, func(b holdfast.Waiter) bool { return a.ID == b.ID }) {
			events = append(events, event{at, "waits", a.Owner, 0})
		}
	}
	if len(events) == 0 {
		return
	}
	r := h.record(lock.Name)
	r.Events = last(append(r.Events, events...), maxEvents)
	r.Held = last(append(r.Held, held...), maxTimes)
	r.Waited = last(append(r.Waited, waited...), maxTimes)
}

// record returns the record of a name as the newest one. The oldest goes if there are too many.
func (h *history) record(name string) *record {
	if h.records == nil {
		h.records = make(map[string]*record)
	}
	r := h.records[name]
	if r == nil {
		r = new(record)
		h.records[name] = r
		if len(h.order) >= maxRecords {
			delete(h.records, h.order[0])
			h.order = slices.Delete(h.order, 0, 1)
		}
	} else {
		i := slices.Index(h.order, name)
		h.order = slices.Delete(h.order, i, i+1)
	}
	h.order = append(h.order, name)
	return r
}

// of returns a copy of the record of a name.
func (h *history) of(name string) record {
	r := h.records[name]
	if r == nil {
		return record{}
	}
	return record{slices.Clone(r.Events), slices.Clone(r.Held), slices.Clone(r.Waited)}
}

// last returns the last n of a list.
func last[T any](list []T, n int) []T {
	if len(list) > n {
		return slices.Clone(list[len(list)-n:])
	}
	return list
}
