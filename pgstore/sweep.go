package pgstore

import (
	"sync"
	"time"
)

const (
	// sweepEvery is how often the names of the schema are looked through for unused ones, if no
	// names are added.
	sweepEvery = 10 * time.Second

	// sweepNames is how many names are looked at in one statement. It may lock as many.
	sweepNames = 64

	// Names that were added make the next look come earlier: after sweepAfter names, it looks at
	// twice as many. So unused rows do not pile up, however fast names are added.
	sweepAfter = sweepNames / 2
)

// sweeps decides which statements also look for rows of unused names, and where. A name that is
// free keeps its row for some seconds, because most names are used again.
type sweeps struct {
	mu    sync.Mutex
	fresh int       // names added since the last sweep
	last  time.Time // when that was
	after string    // where to go on
	busy  bool      // one is in flight
}

// begin returns how many names to look at in the next statement, and behind which.
func (s *sweeps) begin() (after string, names int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := sweepEvery
	if s.after != "" {
		pause /= 100 // in the middle of the names
	}
	now := time.Now()
	if s.busy && now.Sub(s.last) < sweepEvery || s.fresh < sweepAfter && now.Sub(s.last) < pause {
		return "", 0
	}
	s.busy, s.last, s.fresh = true, now, max(0, s.fresh-sweepAfter)
	return s.after, sweepNames
}

// end notes where the next sweep goes on.
func (s *sweeps) end(after string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.after = false, after
}

// add notes names that were added.
func (s *sweeps) add(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh += n
}
