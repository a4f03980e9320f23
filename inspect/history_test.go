package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// Browsers wait while two listings of a long queue are compared.
func TestALongQueueIsComparedQuickly(t *testing.T) {
	const many = 50_000
	queue := func() *snapshot {
		lock := holdfast.Info{Name: "job"}
		for range many {
			lock.Waiters = append(lock.Waiters, holdfast.Waiter{ID: store.NewID()})
			lock.Holders = append(lock.Holders, holdfast.Holder{ID: store.NewID()})
		}
		return &snapshot{at: time.Now(), listing: listing{locks: []holdfast.Info{lock}}}
	}
	before, after := queue(), queue()
	var h history
	begin := time.Now()
	h.note(before, after)
	if took := time.Since(begin); took > 20*time.Second { // with the race detector, on a busy machine
		t.Errorf("%v for %d holders and waiters", took, many)
	}
	if r := h.of("job"); len(r.Events) != maxEvents || len(r.Holds) != maxHolds {
		t.Errorf("%d events, %d holds", len(r.Events), len(r.Holds))
	}
}

// noted compares listings of one lock, and returns its record and the last listing.
func noted(begin time.Time, every time.Duration, locks ...holdfast.Info) (record, *snapshot) {
	var h history
	var before *snapshot
	for i, lock := range locks {
		s := &snapshot{at: begin.Add(time.Duration(i) * every), listing: listing{locks: []holdfast.Info{lock}}}
		s.sightings(before)
		h.note(before, s)
		before = s
	}
	return h.of("job"), before
}

// The wait of a holder is known when it releases the lock, several listings later.
func TestAHoldHasItsWait(t *testing.T) {
	id, now := store.NewID(), time.Now()
	holder := func(age time.Duration) []holdfast.Holder {
		return []holdfast.Holder{{ID: id, Mode: holdfast.ModeExclusive, Age: age, Left: time.Minute}}
	}
	r, _ := noted(now, 2*time.Second,
		holdfast.Info{Name: "job", Waiters: []holdfast.Waiter{{ID: id, Age: 3 * time.Second}}},
		holdfast.Info{Name: "job", Holders: holder(time.Second)},
		holdfast.Info{Name: "job", Holders: holder(3 * time.Second)},
		holdfast.Info{Name: "job"})
	if len(r.Holds) != 1 || r.Holds[0].From.Sub(r.Holds[0].Came) != 4*time.Second || !r.Holds[0].From.Equal(now.Add(time.Second)) {
		t.Errorf("%+v", r.Holds)
	}
}

func TestCountsOfWaitersAreBounded(t *testing.T) {
	list := func(names, waiters int, cut bool) *snapshot {
		s := &snapshot{listing: listing{cut: cut}}
		for i := range names {
			s.locks = append(s.locks, holdfast.Info{Name: fmt.Sprintf("n%05d", i), Waiters: make([]holdfast.Waiter, waiters)})
		}
		return s
	}
	var h history
	h.count(list(10, 0, false), true)
	if len(h.counts) != 0 {
		t.Errorf("%d names that never had a waiter", len(h.counts))
	}
	var lists []*snapshot
	for waiters := range 7 {
		lists = append(lists, list(2*maxRecords, waiters, false))
	}
	for i := range 2 * maxCounts {
		h.count(lists[i%7], false)
	}
	if got := h.counts["n00000"]; len(h.counts) != maxRecords || len(got) != maxCounts || got[maxCounts-1] != (2*maxCounts-1)%7 {
		t.Errorf("%d names, counts %v", len(h.counts), got)
	}
	h.count(list(1, 1, true), false)
	if len(h.counts) != 1 {
		t.Errorf("%d names, of which all but one may be beyond the end of the listing", len(h.counts))
	}
	h.count(list(0, 0, false), false) // the name had waiters
	if got := h.counts["n00000"]; len(got) != maxCounts || got[maxCounts-1] != 0 {
		t.Errorf("a name without waiters: %v", got)
	}
	for range maxCounts {
		h.count(list(0, 0, false), false)
	}
	if len(h.counts) != 0 {
		t.Errorf("%d names without waiters in all counts", len(h.counts))
	}
	h.count(list(1, 3, false), false)
	if h.count(list(1, 5, false), true); !slices.Equal(h.counts["n00000"], []int{5}) {
		t.Errorf("counts %v continue those from before a pause", h.counts)
	}
}

// The timeline shows how long holders held a lock and waited for it, not how old they were when they
// were last seen in that state.
func TestTimesDoNotEndAtTheLastListing(t *testing.T) {
	a, b, c := store.NewID(), store.NewID(), store.NewID()
	exclusive := holdfast.Holder{ID: a, Mode: holdfast.ModeExclusive, Age: time.Second, Left: time.Minute}
	reader := holdfast.Holder{ID: a, Mode: holdfast.ModeShared, Age: time.Second, Left: time.Minute}
	waiters := []holdfast.Waiter{{ID: b, Age: 2 * time.Second}}
	for _, test := range []struct {
		what         string
		before       holdfast.Holder
		after        []holdfast.Holder
		held, waited time.Duration
	}{
		{"handed over", exclusive, []holdfast.Holder{{ID: b, Mode: holdfast.ModeExclusive, Age: 4 * time.Second}}, 7 * time.Second, 8 * time.Second},
		{"released", exclusive, nil, 11 * time.Second, 0},
		{"expired", holdfast.Holder{ID: a, Mode: holdfast.ModeExclusive, Age: time.Second, Left: 3 * time.Second}, nil, 4 * time.Second, 0},
		{"done", exclusive, []holdfast.Holder{{ID: a, Mode: holdfast.ModeExclusive, State: holdfast.StateDone, Age: 9 * time.Second}}, 2 * time.Second, 0},
		{"a reader beside others", reader, []holdfast.Holder{{ID: c, Mode: holdfast.ModeShared, Age: 9 * time.Second}}, 11 * time.Second, 0},
		{"a reader before a writer", reader, []holdfast.Holder{{ID: c, Mode: holdfast.ModeExclusive, Age: 9 * time.Second}}, 2 * time.Second, 0},
	} {
		now := time.Now()
		r, last := noted(now, 10*time.Second,
			holdfast.Info{Name: "job", Holders: []holdfast.Holder{test.before}, Waiters: waiters},
			holdfast.Info{Name: "job", Holders: test.after})
		if len(r.Holds) != 1 || r.Holds[0].To.Sub(r.Holds[0].From) != test.held || !r.Holds[0].From.Equal(now.Add(-time.Second)) {
			t.Errorf("%s: held for %v, want %v", test.what, r.Holds, test.held)
		}
		if waited := last.seen[b].waited; waited != test.waited {
			t.Errorf("%s: waited for %v, want %v", test.what, waited, test.waited)
		}
	}
}
