package rediscore

import (
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	briefHold    = 2 * time.Millisecond // after a longer hold there may be waiters, and a plain release would need a second round trip
	contendedFor = time.Second          // how long a name counts as contended after a call found other clients that want it
	maxHints     = 1 << 20              // entries of a hintMap; grants that are never released stay in it
)

// hints choose the lane that needs one round trip. A wrong hint only costs a second round trip.
type hints struct {
	plain     hintMap[store.ID, plainGrant]  // grants of the plain lane
	contended hintMap[string, time.Duration] // names that others want, and until when they count as contended
}

type plainGrant struct {
	record string // as the server has it
	since  time.Duration
}

// A hintMap is a map with a mutex. When it is full, all entries are removed.
type hintMap[K comparable, V any] struct {
	mu sync.Mutex
	m  map[K]V
}

func (h *hintMap[K, V]) put(key K, value V) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil || len(h.m) >= maxHints {
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
