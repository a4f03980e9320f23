package faults

import (
	"context"
	"slices"
	"time"
)

// PeerPromises reports whether other lock libraries are held to an invariant: exclusion for as long
// as the library says that the lock is held, and the rate after a fault.
func PeerPromises(invariant string) bool { return invariant == "S1" || invariant == "L1" }

// PeerViolations is Violations for other libraries, most of which have no tokens and deadlines to check.
func (h *History) PeerViolations(bound time.Duration) []Violation {
	return slices.Concat(h.Overlaps(), h.LongWaits(bound), h.LostLeases())
}

// A loan is a lock of another library.
type loan struct {
	// live reports whether the lock is held, as the library says, or the server for the session of the lock.
	live   func(context.Context) bool
	extend func(context.Context) error // nil if the library renews the lock itself
	unlock func(context.Context) error
}

// use holds a lock for a time, and calls note for each change of its record. The clock is read
// before the library is asked, so the record of a hold never ends too late.
func (l *loan) use(hold Hold, d time.Duration, now func() time.Duration, sleep func(time.Duration), note func(Hold)) {
	ctx, cancel := context.WithTimeout(context.Background(), d+5*hold.TTL)
	defer cancel()
	believes := func() bool {
		at := now()
		if !l.live(ctx) {
			return false
		}
		hold.Believed = at
		return true
	}
	hold.Got = now()
	end, renew := hold.Got+d, hold.Got+hold.TTL/3
	held := believes()
	note(hold)
	for ; held && now() < end; held = believes() {
		if l.extend != nil && now() >= renew && l.extend(ctx) == nil {
			renew = now() + hold.TTL/3
		}
		sleep(min(max(0, end-now()), 5*time.Millisecond))
	}
	hold.Unlock = now()
	if !held {
		hold.Lost = hold.Unlock
	}
	note(hold) // in case the process is killed
	if l.unlock(ctx) == nil {
		hold.Freed = now()
	}
	note(hold)
}
