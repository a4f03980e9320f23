package faults

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A Hold is one lease as its holder saw it. Times are on a clock that all clients share. Those
// that were not seen are zero.
//
// Every time errs on the safe side, whatever the scheduler does: a hold begins for the record
// no earlier than it began for its holder, and ends no later.
type Hold struct {
	Who   string // the client
	Name  string
	Token int64

	// How it was held: alone, shared with other readers, or as some of the permits of a
	// semaphore.
	Shared  bool
	Permits int
	Limit   int

	Asked time.Duration // the call of Lock
	Got   time.Duration // its return

	// Believed is the last time at which the holder was seen to believe that it holds the
	// name: the lease's context had not ended after that time was read.
	Believed time.Duration

	Unlock time.Duration // the call of Unlock
	Freed  time.Duration // its return, if that said that the lock was released

	// Expiry is the earliest time at which the store may have ended the lease by itself.
	Expiry time.Duration

	// Paused holders prove nothing about overlaps: they could not look.
	Paused bool
}

// An Attempt is a call of Lock that did not return a lease.
type Attempt struct {
	Name  string
	Asked time.Duration
	Ended time.Duration // of a refusal: nobody waited in front, so somebody held the name
}

// A History is what many clients recorded. Its methods may be used by several goroutines.
type History struct {
	mu      sync.Mutex
	holds   map[holdKey]Hold
	unknown []Attempt
	refused []Attempt
}

type holdKey struct {
	who, name string
	token     int64
}

// Add notes a hold, in place of what was noted of the same hold before.
func (h *History) Add(hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holds == nil {
		h.holds = make(map[holdKey]Hold)
	}
	key := holdKey{hold.Who, hold.Name, hold.Token}
	hold.Paused = hold.Paused || h.holds[key].Paused
	h.holds[key] = hold
}

// AddUnknown notes a call whose outcome nobody knows: it failed, or its process was killed.
func (h *History) AddUnknown(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown = append(h.unknown, a)
}

// AddRefused notes a call that was told that somebody else holds the name.
func (h *History) AddRefused(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, a)
}

// Pause notes that a client was stopped while it had its leases.
func (h *History) Pause(who string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, hold := range h.holds {
		if key.who == who {
			hold.Paused = true
			h.holds[key] = hold
		}
	}
}

// Len is the number of holds.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holds)
}

// excludes reports whether two holds of one name exclude each other whatever others there are.
func (h *Hold) excludes(other *Hold) bool {
	return (!h.Shared || !other.Shared) && (h.Permits == 0 || other.Permits == 0)
}

// exclusive reports whether a hold was alone.
func (h *Hold) exclusive() bool { return !h.Shared && h.Permits == 0 }

// byName returns the holds of each name, by token.
func (h *History) byName() map[string][]Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make(map[string][]Hold)
	for _, hold := range h.holds {
		names[hold.Name] = append(names[hold.Name], hold)
	}
	for _, holds := range names {
		slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Token, b.Token) })
	}
	return names
}
