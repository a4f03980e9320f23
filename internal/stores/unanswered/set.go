// Package unanswered remembers requests without a reply. Such a request may still be in flight,
// and may be executed after the call that undoes it.
package unanswered

import (
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Late is how long a request without a reply may still arrive. In most cases it is longer than a
// server hangs. A request that arrives even later may leave a grant without a holder, which ends
// after its TTL.
const Late = time.Minute

// A Set holds the identities of requests without a reply, each for [Late]. The zero value is
// empty. Its methods are safe for concurrent use.
type Set struct {
	mu    sync.Mutex
	until map[store.ID]time.Time
	swept time.Time
}

// Add adds an identity.
func (s *Set) Add(id store.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = make(map[store.ID]time.Time)
	}
	now := time.Now()
	if now.Sub(s.swept) > Late {
		s.swept = now
		for id, until := range s.until {
			if now.After(until) {
				delete(s.until, id)
			}
		}
	}
	s.until[id] = now.Add(Late)
}

// Has reports whether an identity was added within the last [Late].
func (s *Set) Has(id store.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, found := s.until[id]
	return found && time.Now().Before(until)
}
