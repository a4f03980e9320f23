package faults

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestOtherLibrariesAreHeldOnlyToTheirPromises(t *testing.T) {
	if !PeerPromises("S1") || !PeerPromises("L1") || PeerPromises("L2") || PeerPromises("R1") || PeerPromises("S2") {
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
