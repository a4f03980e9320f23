package inspect

import (
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
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("%v for %d holders and waiters", took, many)
	}
	if r := h.of("job"); len(r.Events) != maxEvents || len(r.Held) != maxTimes {
		t.Errorf("%d events, %d times", len(r.Events), len(r.Held))
	}
}

// The plots show how long holders held a lock and waited for it, not how old they were when they
// were last seen in that state.
func TestTimesDoNotEndAtTheLastListing(t *testing.T) {
	a, b, c := store.NewID(), store.NewID(), store.NewID()
	before := holdfast.Info{
		Name:    "job",
		Holders: []holdfast.Holder{{ID: a, Mode: holdfast.ModeExclusive, Age: time.Second, Left: time.Minute}},
		Waiters: []holdfast.Waiter{{ID: b, Age: 2 * time.Second}},
	}
	for _, test := range []struct {
		what         string
		before       holdfast.Holder
		after        []holdfast.Holder
		held, waited time.Duration
	}{
		{"handed over", before.Holders[0], []holdfast.Holder{{ID: b, Mode: holdfast.ModeExclusive, Age: 4 * time.Second}}, 7 * time.Second, 8 * time.Second},
		{"released", before.Holders[0], nil, 11 * time.Second, 0},
		{"expired", holdfast.Holder{ID: a, Mode: holdfast.ModeExclusive, Age: time.Second, Left: 3 * time.Second}, nil, 4 * time.Second, 0},
		{"done", before.Holders[0], []holdfast.Holder{{ID: a, Mode: holdfast.ModeExclusive, State: holdfast.StateDone, Age: 9 * time.Second}}, 2 * time.Second, 0},
		{
			"a reader beside others",
			holdfast.Holder{ID: a, Mode: holdfast.ModeShared, Age: time.Second, Left: time.Minute},
			[]holdfast.Holder{{ID: c, Mode: holdfast.ModeShared, Age: 9 * time.Second}},
			11 * time.Second, 0,
		},
		{
			"a reader before a writer",
			holdfast.Holder{ID: a, Mode: holdfast.ModeShared, Age: time.Second, Left: time.Minute},
			[]holdfast.Holder{{ID: c, Mode: holdfast.ModeExclusive, Age: 9 * time.Second}},
			2 * time.Second, 0,
		},
	} {
		before.Holders = []holdfast.Holder{test.before}
		now := time.Now()
		var h history
		h.note(&snapshot{at: now, listing: listing{locks: []holdfast.Info{before}}},
			&snapshot{at: now.Add(10 * time.Second), listing: listing{locks: []holdfast.Info{{Name: "job", Holders: test.after}}}})
		r := h.of("job")
		if len(r.Held) != 1 || r.Held[0] != test.held {
			t.Errorf("%s: held for %v, want %v", test.what, r.Held, test.held)
		}
		if test.waited != 0 && (len(r.Waited) != 1 || r.Waited[0] != test.waited) {
			t.Errorf("%s: waited for %v, want %v", test.what, r.Waited, test.waited)
		}
	}
}
