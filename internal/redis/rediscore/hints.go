package rediscore

import (
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	briefHold    = 2 * time.Millisecond // after a longer hold there may be waiters, and a plain release would need a second round trip
	contendedFor = time.Second          // how long a name counts as contended after a call found other clients that want it

	// Entries of a hintMap: grants that are never released, and names that nobody asks for again, stay in it.
	maxGrants, maxNames = 1 << 20, 1 << 14
)

// hints choose the lane that needs one round trip. A wrong hint only costs a second round trip.
type hints struct {
	plain     hintMap[store.ID, plainGrant]  // grants of the plain lane
	contended hintMap[string, time.Duration] // until when names count as contended
}

type plainGrant struct {
	record string // as the server has it
	since  time.Duration
}

// A hintMap is a map with a mutex.
type hintMap[K comparable, V any] struct {
	mu sync.Mutex
	m  map[K]V
}

// put sets the value of a key. If there are max entries, it first removes all of them.
func (h *hintMap[K, V]) put(key K, value V, max int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil || len(h.m) >= max {
		h.m = make(map[K]V)
	}
	h.m[key] = value
}

// get returns the value of a key, and removes it if take is set.
func (h *hintMap[K, V]) get(key K, take bool) (value V, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	value, ok = h.m[key]
	if ok && take {
		delete(h.m, key)
	}
	return value, ok
}

func (h *hints) setContended(name string, is bool) {
	if is {
		h.contended.put(name, sinceBase()+contendedFor, maxNames)
	} else {
		h.contended.get(name, true)
	}
}

func (h *hints) isContended(name string) bool {
	until, _ := h.contended.get(name, false)
	return until > sinceBase()
}
