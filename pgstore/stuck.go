package pgstore

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stuckFor is how long a name counts as stuck after its row was last found locked.
	stuckFor = time.Minute

	// rowPatience is how long calls on one name wait for a row that another session has locked. A
	// statement waits for less, the lock_timeout of the functions, because it keeps the rows of its
	// other names locked meanwhile.
	rowPatience = time.Second
)

// stuck remembers names whose rows another session had locked for longer than the lock_timeout of the
// functions, such as a forgotten transaction in psql. Calls for such names are sent apart, one
// statement at a time, so that they do not take the connections of all other calls.
type stuck struct {
	n     atomic.Int64 // length of until; calls do not take the mutex while it is 0
	mu    sync.Mutex
	until map[string]time.Time
}

func (s *stuck) has(name string) bool {
	if s.n.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until[name])
}

func (s *stuck) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = make(map[string]time.Time)
	}
	now := time.Now()
	maps.DeleteFunc(s.until, func(_ string, until time.Time) bool { return now.After(until) })
	s.until[name] = now.Add(stuckFor)
	s.n.Store(int64(len(s.until)))
}

func (s *stuck) remove(name string) {
	if s.n.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, name)
	s.n.Store(int64(len(s.until)))
}
