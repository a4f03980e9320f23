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
	plain     hintMap[store.ID, plainGrant] // grants of the plain lane
	contended recentNames                   // names that others want
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

// recentNames is a set of names. Each name stays in it for contendedFor. Names that are no longer in
// it are removed by later calls, whatever names these are for.
type recentNames struct {
	mu       sync.Mutex
	now, old map[string]time.Duration // until when each name is in the set
	turned   time.Duration            // since when names are added to now; old has those before
}

// turn removes the names that have been added long ago. The caller holds the mutex.
func (r *recentNames) turn(now time.Duration) {
	if now-r.turned <= contendedFor {
		return
	}
	r.old, r.now = r.now, nil
	if now-r.turned > 2*contendedFor {
		r.old = nil
	}
	r.turned = now
}

func (r *recentNames) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := sinceBase()
	r.turn(now)
	if r.now == nil {
		r.now = make(map[string]time.Duration)
	}
	r.now[name] = now + contendedFor
}

func (r *recentNames) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.now, name)
	delete(r.old, name)
}

func (r *recentNames) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := sinceBase()
	r.turn(now)
	return max(r.now[name], r.old[name]) > now
}
