package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOtherLibrariesAreHeldOnlyToTheirPromises shows histories of another library with what is
// counted against it, and what is seen but not promised.
func TestOtherLibrariesAreHeldOnlyToTheirPromises(t *testing.T) {
	holder := Hold{Who: "p1/0", Name: "n", Token: 7, TTL: 2 * s, Asked: 1 * s, Got: 2 * s, Believed: 4 * s}
	freed := holder
	freed.Unlock, freed.Freed = 4*s, 4*s
	lost := holder
	lost.Lost, lost.Unlock = 4*s, 4*s
	at := func(got time.Duration) Hold {
		return Hold{Who: "p2/0", Name: "n", Token: 1, TTL: 2 * s, Asked: 1 * s, Got: got, Believed: got + s, Unlock: got + s, Freed: got + s}
	}
	later := at(6 * s)
	later.Asked = 5 * s
	for _, test := range []struct {
		name, broken, notPromised string
		holds                     []Hold
		more                      func(h *History)
	}{
		{"one after the other", "", "", []Hold{freed, at(5 * s)}, nil},
		{"a later hold has a lower number", "", "", []Hold{freed, later}, nil},
		{"two holders at once", "S1", "", []Hold{freed, at(3 * s)}, nil},
		{"the second ends before the first", "S1", "", []Hold{freed, at(2*s + 1)}, nil},
		{"granted after the first was last valid", "", "", []Hold{holder, at(4*s + 1)}, nil},
		{"granted when the first was last valid", "S1", "", []Hold{holder, at(4 * s)}, nil},
		{"the first holder was killed", "", "", []Hold{holder, at(3 * s)}, func(h *History) { h.End("p1", 2*s+1) }},
		{"another process was killed", "S1", "", []Hold{holder, at(3 * s)}, func(h *History) { h.End("p9", 2*s+1) }},
		{"a documented weakness", "", "", []Hold{holder, at(3 * s)}, func(h *History) {
			h.AddFault(Fault{Kind: "data lost", Begin: 2 * s, End: 2 * s, Weak: "data is lost", After: 6 * s})
		}},
		{"a long wait for a free name", "", "L2", []Hold{freed, at(30 * s)}, nil},
		{"a wait in vain", "", "L2", []Hold{freed}, func(h *History) { h.AddUnknown(Attempt{Name: "n", Asked: 5 * s, Ended: 30 * s}) }},
		{"a lock lost without a fault", "", "L3", []Hold{lost}, nil},
		{"a lock lost to another process", "", "L4", []Hold{lost}, func(h *History) { h.AddFault(Fault{Process: "p2", Begin: 2 * s, End: 4 * s}) }},
	} {
		h := new(History)
		for _, hold := range test.holds {
			h.Add(hold)
		}
		if test.more != nil {
			test.more(h)
		}
		var broken, notPromised []string
		for _, v := range h.PeerViolations(8 * s) {
			if _, weak := h.Weakness(v); weak {
				continue
			}
			list := &notPromised
			if PeerPromises(v.Invariant) {
				list = &broken
			}
			if !slices.Contains(*list, v.Invariant) {
				*list = append(*list, v.Invariant)
			}
		}
		if strings.Join(broken, " ") != test.broken || strings.Join(notPromised, " ") != test.notPromised {
			t.Errorf("%s: broken %v, not promised %v; want %q, %q", test.name, broken, notPromised, test.broken, test.notPromised)
		}
	}
	if !PeerPromises("L1") || PeerPromises("R1") || PeerPromises("S2") {
		t.Error("other libraries are held to the wrong invariants")
	}
}

// TestALoanIsRecordedUntilTheLibrarySaysThatItIsLost drives the workload of another library with a
// clock of its own.
func TestALoanIsRecordedUntilTheLibrarySaysThatItIsLost(t *testing.T) {
	var at, until, seen time.Duration // until is when the library says that the lock is lost
	refresh, failed := time.Duration(0), errors.New("not extended")
	clock := func() time.Duration { at++; return at }
	l := &loan{
		live: func(context.Context) bool {
			live := at < until
			if live {
				seen = at
			}
			at += time.Millisecond // the answer takes a while
			return live
		},
		extend: func(context.Context) error {
			if refresh == 0 {
				return failed
			}
			until = at + refresh
			return nil
		},
		unlock: func(context.Context) error {
			if at >= until {
				return failed
			}
			return nil
		},
	}
	use := func(from, valid, d time.Duration) (last Hold, notes int) {
		at, until, seen = from, from+valid, 0
		l.use(Hold{Name: "n", TTL: 2 * s}, d, clock, func(d time.Duration) { at += d }, func(hold Hold) { last, notes = hold, notes+1 })
		if last.Believed != seen {
			t.Errorf("believed at %v, but the library was last asked at %v", last.Believed, seen)
		}
		return last, notes
	}
	if hold, notes := use(10*s, 2*s, s); notes != 3 || hold.Lost != 0 || hold.Freed == 0 || hold.Believed < 11*s || hold.Believed > hold.Unlock {
		t.Errorf("a hold of half the TTL: %+v in %d notes", hold, notes)
	}
	if hold, _ := use(10*s, 2*s, 3*s); hold.Lost == 0 || hold.Freed != 0 || hold.Believed >= 12*s || hold.Believed < 12*s-10*time.Millisecond {
		t.Errorf("a hold that is not extended: %+v", hold)
	}
	if hold, _ := use(10*s, 0, s); hold.Believed != 0 || hold.Lost == 0 {
		t.Errorf("a lock that was lost when it was granted: %+v", hold)
	}
	refresh = 2 * s
	if hold, _ := use(10*s, 2*s, 9*s); hold.Lost != 0 || hold.Freed == 0 || hold.Believed < 19*s {
		t.Errorf("a hold that is extended: %+v", hold)
	}
}
