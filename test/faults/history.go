package faults

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A Hold is one lease as its holder saw it. Times are on a clock that all clients share, and are
// zero if they were not observed.
//
// Recorded times are on the safe side, whatever the scheduler does: the record of a hold begins
// no earlier than the hold, and ends no later.
type Hold struct {
	Who   string // the client
	Name  string
	Token int64

	// These fields are the mode, which is exclusive if neither Shared nor Permits is set.
	Shared  bool
	Permits int
	Limit   int

	Asked time.Duration // when Lock was called
	Got   time.Duration // when it returned

	// Believed is the last time at which the lease was seen to be live: its context had not
	// ended after that time was read.
	Believed time.Duration

	Unlock time.Duration // when Unlock was called
	Freed  time.Duration // when Unlock returned, if the lock was released

	// Expiry is the earliest time at which the store may have ended the grant on its own.
	Expiry time.Duration

	// Paused holders are ignored by CheckOverlap, because they could not check their lease.
	Paused bool
}

// An Attempt is a call of Lock that did not return a lease.
type Attempt struct {
	Name  string
	Asked time.Duration
	Ended time.Duration // if refused: when the queue was empty, so that the name was held
}

// A History is the record of many clients. Its methods are safe for concurrent use.
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

// Add records a hold, and replaces an earlier record of the same hold.
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

// AddUnknown records a call with an unknown outcome: it failed, or its process was killed.
func (h *History) AddUnknown(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown = append(h.unknown, a)
}

// AddRefused records a call that was refused because the name was held.
func (h *History) AddRefused(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = append(h.refused, a)
}

// Pause records that a client was stopped while it held its leases.
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

// Len returns the number of holds.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holds)
}

// excludes reports whether two holds of one name exclude each other in any case.
func (h *Hold) excludes(other *Hold) bool {
	return (!h.Shared || !other.Shared) && (h.Permits == 0 || other.Permits == 0)
}

// exclusive reports whether a hold was exclusive.
func (h *Hold) exclusive() bool { return !h.Shared && h.Permits == 0 }

// byName returns the holds of each name, in order of tokens.
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
