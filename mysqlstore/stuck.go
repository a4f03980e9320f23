package mysqlstore

import (
	"maps"
	"sync"
	"time"
)

// stuckRows are the rows that calls have waited for in vain, because a hung client has locked them.
type stuckRows struct {
	mu    sync.Mutex
	until map[string]time.Time // by name: when the server has ended the connection of that client
	err   error                // of the last call that waited for a row
}

func (r *stuckRows) add(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.until == nil {
		r.until = make(map[string]time.Time)
	}
	maps.DeleteFunc(r.until, func(_ string, until time.Time) bool { return now.After(until) })
	r.until[name], r.err = now.Add(serverIdle), err
}

func (r *stuckRows) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, name)
}

func (r *stuckRows) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.until) > 0 && time.Now().Before(r.until[name])
}

// failure returns the error of calls for these rows.
func (r *stuckRows) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}
