package faults

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Hold is one lease as its holder saw it. Times are on a clock that all clients share, and zero if they were
// not observed. They are on the safe side, whatever the scheduler does: the record of a hold begins no earlier
// than the hold, and ends no later.
type Hold struct {
	Who   string // the client, as process/client if several processes take part
	Name  string
	ID    string // of the grant; hand-overs keep it
	Token int64
	TTL   time.Duration

	// These fields are the mode, which is exclusive if neither Shared nor Permits is set.
	Shared  bool
	Permits int
	Limit   int

	Asked time.Duration // when Lock was called
	Got   time.Duration // when it returned

	Believed time.Duration // the last time after which the context of the lease was seen not to have ended

	Unlock time.Duration // when Unlock was called
	Freed  time.Duration // when Unlock returned, if the lock was released

	Deadline time.Duration // the end of the lease, as its holder last saw it
	Expiry   time.Duration // the earliest time at which the store may have ended the grant on its own
	Closed   time.Duration // the name stays closed until then, after a release that succeeded
	Lost     time.Duration // when the holder saw that a lease that renews itself was lost
	Ended    time.Duration `json:"-"` // when the lease was ended on purpose, other than by Unlock; see History.End
	Paused   bool          // the holder could not check its lease, so CheckOverlap ignores it
}

func (h *Hold) process() string {
	process, _, _ := strings.Cut(h.Who, "/")
	return process
}

// An Attempt is a call of Lock that did not return a lease.
type Attempt struct {
	Who   string
	Name  string
	Asked time.Duration
	Ended time.Duration // when it returned; 0 if that is not known
}

// A Fault is a disturbance that a test caused.
type Fault struct {
	Kind       string
	Begin, End time.Duration
	Process    string // the process that it affects; all if empty
	Name       string // the name that it affects; all if empty
	Spares     bool   // it costs no lease, however long it lasts

	// Weak is the documented weakness that such a fault shows, and After how long after its end it can be seen.
	Weak  string
	After time.Duration
}

// A History is the record of many clients. Its methods are safe for concurrent use.
type History struct {
	mu      sync.Mutex
	holds   map[holdKey]Hold
	unknown []Attempt
	faults  []Fault
	ends    map[string]time.Duration

	grants, failures int // including those that Forget has removed
}

type holdKey struct {
	who, name string
	token     int64
	shared    bool // a lease that is downgraded continues as another hold
}

// Add records a hold, and replaces an earlier record of the same hold.
func (h *History) Add(hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holds == nil {
		h.holds = make(map[holdKey]Hold)
	}
	key := holdKey{hold.Who, hold.Name, hold.Token, hold.Shared}
	old, known := h.holds[key]
	if !known {
		h.grants++
	}
	hold.Paused = hold.Paused || old.Paused
	h.holds[key] = hold
}

// AddUnknown records a call with an unknown outcome: it failed, or its process was killed.
func (h *History) AddUnknown(a Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unknown = append(h.unknown, a)
	h.failures++
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

// End records that leases ended on purpose, whatever their holders believe: those of a process that is killed,
// of a client that is closed, or of a grant that is broken, whose key is Grant.
func (h *History) End(key string, at time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ends == nil {
		h.ends = make(map[string]time.Duration)
	}
	if old, ok := h.ends[key]; !ok || at < old {
		h.ends[key] = at
	}
}

// Grant returns the key of a grant for End.
func Grant(name, id string) string { return name + " " + id }

// AddFault records a fault that is over.
func (h *History) AddFault(f Fault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, f)
}

// Forget removes what was over before a time, to save memory. It keeps the highest token of each name.
func (h *History) Forget(before time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	highest := make(map[string]int64)
	for key := range h.holds {
		highest[key.name] = max(highest[key.name], key.token)
	}
	for key, hold := range h.holds {
		over := hold.Unlock > 0 || hold.Lost > 0 || h.endOf(&hold) < never
		if over && max(hold.Got, hold.Unlock, hold.Freed, hold.Lost, hold.Expiry, hold.Closed) < before && key.token < highest[key.name] {
			delete(h.holds, key)
		}
	}
	h.unknown = slices.DeleteFunc(h.unknown, func(a Attempt) bool { return a.Ended < before })
}

// endOf returns when a lease was ended on purpose. The caller holds the mutex.
func (h *History) endOf(hold *Hold) time.Duration {
	end := time.Duration(never)
	for _, key := range []string{hold.Who, hold.process(), Grant(hold.Name, hold.ID)} {
		if at, ok := h.ends[key]; ok {
			end = min(end, at)
		}
	}
	return end
}

// excludes reports whether two holds of one name exclude each other in any case.
func (h *Hold) excludes(other *Hold) bool {
	return (!h.Shared || !other.Shared) && (h.Permits == 0 || other.Permits == 0)
}

func (h *Hold) exclusive() bool { return !h.Shared && h.Permits == 0 }

// byName returns the holds of each name, in order of tokens.
func (h *History) byName() map[string][]Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make(map[string][]Hold)
	for _, hold := range h.holds {
		end := h.endOf(&hold)
		if hold.Got >= end {
			continue // the holder did not know that its grant had ended
		}
		hold.Believed, hold.Deadline, hold.Ended = min(hold.Believed, end), min(hold.Deadline, end), end
		names[hold.Name] = append(names[hold.Name], hold)
	}
	for _, holds := range names {
		slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Token, b.Token) })
	}
	return names
}
