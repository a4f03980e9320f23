package pgstore

import (
	"sync"
	"time"
)

const (
	// sweepEvery is how often the schema is searched for unused names while no names are added.
	sweepEvery = 10 * time.Second

	// sweepNames is how many names one statement checks. It removes that many in milliseconds.
	sweepNames = 1000

	// When names are added, the next sweep starts earlier: after sweepAfter new names, it checks
	// twice as many names. So unused rows do not pile up, however fast names are added.
	sweepAfter = 32
)

// sweeps decides which statements also sweep rows of unused names, and where they continue. A
// name that is free keeps its row for some seconds, because most names are used again.
type sweeps struct {
	mu    sync.Mutex
	fresh int       // names added since the last sweep
	last  time.Time // time of the last sweep
	after string    // name after which the next sweep continues
	busy  bool      // a sweep is in flight
}

// begin returns how many names to check in the next statement, and the name after which to start.
func (s *sweeps) begin() (after string, names int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := sweepEvery
	if s.after != "" {
		pause /= 100 // shorter in the middle of the names than at their end
	}
	now := time.Now()
	names = sweepNames
	if now.Sub(s.last) < pause {
		names = 2 * sweepAfter
	}
	if s.busy && now.Sub(s.last) < sweepEvery || s.fresh < sweepAfter && names < sweepNames {
		return "", 0
	}
	s.busy, s.last, s.fresh = true, now, max(0, s.fresh-sweepAfter)
	return s.after, names
}

// end records where the next sweep continues.
func (s *sweeps) end(after string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.after = false, after
}

// add counts a name that was added.
func (s *sweeps) add() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh++
}
