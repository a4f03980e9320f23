package mysqlstore

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
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

// findStuck looks which of the suspected rows are locked. It does not wait for them.
func (s *Store) findStuck(grants []store.Renewal, suspect func(name string) bool, failure error) error {
	var names []string
	for i := range grants {
		if suspect(grants[i].Name) {
			names = append(names, grants[i].Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	var locked map[string]bool
	err := s.gives.use(context.Background(), func(ctx context.Context, c *conn) (err error) {
		locked, err = s.lockedNames(ctx, c, names)
		return err
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if locked[name] {
			s.stuck.add(name, failure)
		} else {
			s.stuck.remove(name)
		}
	}
	return nil
}

// renewUnstuck extends the grants whose rows are not stuck. The outcomes of the others are unknown.
func (s *Store) renewUnstuck(grants []store.Renewal, outcomes []store.Renewed) error {
	var some []store.Renewal
	var places []int
	for i := range grants {
		if s.stuck.has(grants[i].Name) {
			outcomes[i] = store.Renewed{Err: s.explain(s.life, s.stuck.failure())}
		} else {
			some, places = append(some, grants[i]), append(places, i)
		}
	}
	if len(some) == 0 {
		return nil
	}
	renewed := make([]store.Renewed, len(some))
	err := s.renewAll(some, renewed)
	for n, i := range places {
		outcomes[i] = renewed[n]
	}
	return err
}
