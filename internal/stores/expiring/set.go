// Package expiring has a set whose members expire.
package expiring

import (
	"maps"
	"sync"
	"time"
)

// Late is how long a request without a reply may still be in flight, and be executed after the call that
// undoes it. If it arrives even later, it may leave a grant without a holder, which ends after its TTL.
const Late = time.Minute

const sweepEvery = time.Minute // how often expired members are removed, at most

// A Set holds members until they expire. The zero value is empty. Methods may be called concurrently.
type Set[K comparable] struct {
	mu    sync.Mutex
	until map[K]time.Time
	swept time.Time
}

// Add adds a member for a time, or extends the time of one.
func (s *Set[K]) Add(k K, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = make(map[K]time.Time)
	}
	now := time.Now()
	if now.Sub(s.swept) > sweepEvery {
		s.swept = now
		maps.DeleteFunc(s.until, func(_ K, until time.Time) bool { return now.After(until) })
	}
	s.until[k] = now.Add(d)
}

// Remove removes a member, if it is there.
func (s *Set[K]) Remove(k K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, k)
}

// Has reports whether a member was added and has not expired.
func (s *Set[K]) Has(k K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, found := s.until[k]
	return found && time.Now().Before(until)
}
