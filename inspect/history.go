package inspect

import (
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	maxRecords = 1000 // names with a history, and names with counts of waiters
	maxEvents  = 100  // of a name
	maxHolds   = 20   // of a name
	maxCounts  = 60   // of a name, one for each listing
)

// A history holds the changes of names that a comparison of listings shows. It misses a grant
// that begins and ends between two listings.
type history struct {
	records map[string]*record
	counts  map[string][]int // waiters in the last listings, the newest last, of names that have or had waiters
	order   []string         // names of records, the one whose last change is oldest first
}

// A record is the history of one name.
type record struct {
	Events []event // the newest last
	Holds  []hold  // that have ended, the newest last
}

// A hold is the time for which somebody waited for a lock and then held it.
type hold struct {
	Owner          string
	Token          int64     // 0 for a waiter
	Came, From, To time.Time // it waited from Came, and held the lock from From to To
	Now            string    // what it does now: "held", "done", "cooling" or "waiting"; empty if it has ended
}

// An event is a change between two listings.
type event struct {
	At    time.Time
	What  string
	Owner string
	Token int64
}

// note compares two listings and records the changes. Before is nil for the first listing.
func (h *history) note(before, after *snapshot) {
	if before == nil {
		return
	}
	for _, lock := range after.locks {
		old, found := before.find(lock.Name)
		if !found && before.cut {
			continue // the name may have been beyond the end of the listing
		}
		h.compare(&old, &lock, before, after)
	}
	if after.cut || before.cut {
		return // a name that is missing may be beyond the end of the listing
	}
	for _, old := range before.locks {
		if lock, found := after.find(old.Name); !found {
			h.compare(&old, &lock, before, after)
		}
	}
}

// count adds the numbers of waiters in a listing to the counts. If the listing is the first one, it
// does not continue earlier counts. A name is dropped if it had no waiter in all counts, or may be
// beyond the end of the listing.
func (h *history) count(s *snapshot, first bool) {
	if first {
		h.counts = make(map[string][]int)
	}
	for _, lock := range s.locks {
		if _, ok := h.counts[lock.Name]; !ok && len(lock.Waiters) > 0 && len(h.counts) < maxRecords {
			h.counts[lock.Name] = nil
		}
	}
	for name, counts := range h.counts {
		lock, found := s.find(name)
		counts = last(append(counts, len(lock.Waiters)), maxCounts)
		if h.counts[name] = counts; slices.Max(counts) == 0 || !found && s.cut {
			delete(h.counts, name)
		}
	}
}

// A phase is a grant, or the kept record that replaced it.
type phase struct {
	id    holdfast.ID
	state holdfast.State
}

// arrivals say what has happened when a holder in that state is new.
var arrivals = map[holdfast.State]string{
	holdfast.StateHeld: "acquired", holdfast.StateDone: "closed: done", holdfast.StateCooling: "closed: minimum hold",
}

func (h *history) compare(old, lock *holdfast.Info, before, after *snapshot) {
	at, elapsed := after.at, after.at.Sub(before.at)
	sameHolder := func(a, b holdfast.Holder) bool { return a.ID == b.ID && a.State == b.State }
	sameWaiter := func(a, b holdfast.Waiter) bool { return a.ID == b.ID }
	if slices.EqualFunc(old.Holders, lock.Holders, sameHolder) && slices.EqualFunc(old.Waiters, lock.Waiters, sameWaiter) {
		return
	}
	held := make(map[phase]bool) // in the old listing
	for _, b := range old.Holders {
		held[phase{b.ID, b.State}] = true
	}
	waiting := make(map[holdfast.ID]time.Duration) // in the old listing
	for _, b := range old.Waiters {
		waiting[b.ID] = b.Age
	}
	holds := make(map[phase]bool)
	// When the first new holder and the first new exclusive holder came, after the old listing.
	came, cameAlone := elapsed, elapsed
	var acquired, events []event
	for _, a := range lock.Holders {
		holds[phase{a.ID, a.State}] = true
		if held[phase{a.ID, a.State}] {
			continue
		}
		since := max(0, elapsed-a.Age)
		if came = min(came, since); a.Mode == holdfast.ModeExclusive {
			cameAlone = min(cameAlone, since)
		}
		acquired = append(acquired, event{at, arrivals[a.State], a.Owner, a.Token})
		if age, ok := waiting[a.ID]; ok {
			now := after.seen[a.ID]
			now.waited = age + since
			after.seen[a.ID] = now
		}
	}

	var ends []hold
	for _, b := range old.Holders {
		if b.State != holdfast.StateHeld || holds[phase{b.ID, b.State}] {
			continue
		}
		what := "released"
		if b.Left <= elapsed {
			what = "expired" // not renewed in time, unless it was released at the last moment
		}
		events = append(events, event{at, what, b.Owner, b.Token})
		// It ended when it expired, before a holder came that excludes it, or at an unknown time.
		ended := min(b.Left, cameAlone)
		if b.Mode == holdfast.ModeExclusive {
			ended = min(b.Left, came)
		}
		from := before.at.Add(-b.Age)
		ends = append(ends, hold{Owner: b.Owner, Token: b.Token, Came: from.Add(-before.seen[b.ID].waited), From: from, To: before.at.Add(ended)})
	}
	events = append(events, acquired...)
	for _, a := range lock.Waiters {
		if _, ok := waiting[a.ID]; !ok {
			events = append(events, event{at, "waits", a.Owner, 0})
		}
	}
	if len(events) == 0 {
		return
	}
	r := h.record(lock.Name)
	r.Events = last(append(r.Events, events...), maxEvents)
	r.Holds = last(append(r.Holds, ends...), maxHolds)
}

// record returns the record of a name, which becomes the newest. It may have to remove the oldest one.
func (h *history) record(name string) *record {
	if h.records == nil {
		h.records = make(map[string]*record)
	}
	r := h.records[name]
	if r == nil {
		r = new(record)
		h.records[name] = r
	}
	h.order = append(slices.DeleteFunc(h.order, func(other string) bool { return other == name }), name)
	if len(h.order) > maxRecords {
		delete(h.records, h.order[0])
		h.order = slices.Delete(h.order, 0, 1)
	}
	return r
}

func (h *history) of(name string) record {
	if r := h.records[name]; r != nil {
		return record{slices.Clone(r.Events), slices.Clone(r.Holds)}
	}
	return record{}
}

func last[T any](list []T, n int) []T {
	if len(list) > n {
		return slices.Clone(list[len(list)-n:])
	}
	return list
}
