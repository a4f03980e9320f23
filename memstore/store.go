// Package memstore keeps locks in the memory of this process. It is meant for tests and for
// programs that run as a single process, and it is the reference for all other stores. [New] returns a
// store of its own. The URL "memory:NAME" opens one that all handles with that URL in this process share.
//
// Its promises hold within one process: others do not see its locks, and nothing survives its end, not
// even tokens. Locks, kept records and tokens of a URL also end when its last handle is closed, so keep
// one open. Use a store on a server to protect a resource that outlives the process.
//
// Times are measured by the monotonic clock of the process, so changes of the wall clock have
// no effect. Tokens come from one counter for the whole store and start at 1. A
// [store.Request] with a high Floor raises the tokens of every name.
//
// The store has no goroutine and no timer. Expired grants and waiters are removed by the next
// call on their name, and otherwise step by step by calls on other names.
//
// To write another store, read this one first. In general, a call loads the claims of a name, package
// rules decides about them, and the call writes what has changed. Here the claims are in a map, so there
// is nothing to load and to write.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// heartbeat is how long a waiter that stopped asking keeps its place. It is short because a client
	// may end without a call of Leave, and longer than the delays of a busy scheduler.
	heartbeat = 5 * time.Second

	// askWithin lets a waiter keep its place if one request is late.
	askWithin = heartbeat / 3

	// minTTL is so long that a loaded machine does not lose leases by scheduling delays alone.
	minTTL = 10 * time.Millisecond
)

var (
	_ store.Store = (*Store)(nil)

	errClosed = fmt.Errorf("memory store: %w", store.ErrClosed)
)

// A Store is a handle on locks in memory. Use [New] for a private one, or open a shared one by
// its URL, "memory:" or "memory:NAME".
type Store struct {
	table *table
	done  chan struct{} // closed by Close
	close func()        // works once
}

// New returns an empty store that is not shared with any other handle.
func New() *Store { return newStore(newTable(), func() {}) }

// newStore returns a handle on a table. Its Close calls free.
func newStore(t *table, free func()) *Store {
	done := make(chan struct{})
	return &Store{table: t, done: done, close: sync.OnceFunc(func() {
		close(done)
		free()
	})}
}

// Capabilities returns what this store supports: all features within one process.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: "memory",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue |
			store.FeatureKeep | store.FeatureList,
		MinTTL:    minTTL,
		Heartbeat: heartbeat,
		Instant:   true,
	}
}

// Close closes this handle; see [store.Store].
func (s *Store) Close() error {
	s.close()
	return nil
}

func (s *Store) usable(ctx context.Context) error {
	select {
	case <-s.done:
		return errClosed
	default:
		return ctx.Err()
	}
}

func (s *Store) call(ctx context.Context, name string, f func(c *rules.Call) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.table.call(name, f)
}

// Acquire makes one attempt to take a name; see [store.Store], and [store.SameClaim] for a repeated request.
func (s *Store) Acquire(ctx context.Context, req store.Request) (answer store.Answer, err error) {
	err = s.call(ctx, req.Name, func(c *rules.Call) error {
		answer, err = c.Ask(&req)
		return err
	})
	return answer, err
}

// Leave removes an identity from the queue and releases its grant; see [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	return s.call(ctx, name, func(c *rules.Call) error {
		c.Leave(id)
		return nil
	})
}

// Break ends a grant or a kept record by force; see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.call(ctx, name, func(c *rules.Call) error { return c.Break(id) })
}

// Release ends a grant, or keeps its name closed for a time; see [store.Store].
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	return s.call(ctx, name, func(c *rules.Call) error { return c.Release(id, keep) })
}

// Renew extends grants; see [store.Store]. The error is [store.ErrInvalid] also for a floor with no token above it.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]store.Renewed, len(grants))
	for i := range grants {
		s.table.call(grants[i].Name, func(c *rules.Call) error {
			outcomes[i] = c.Renew(&grants[i])
			return nil
		})
	}
	return outcomes, nil
}

// Wait blocks until a queued identity should ask again; see [store.Store]. It returns nil at once if the
// identity is not queued.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	return s.table.waits.Wait(ctx, wake.Key{Name: name, ID: id}, s.done, errClosed)
}

// List returns one page of the names that have holders or waiters, sorted by name; see [store.Store].
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.usable(ctx); err != nil {
		return store.Page{}, err
	}
	limit := rules.PageSize(q)
	names := []string{q.Name}
	if q.Name == "" {
		names = s.table.namesAfter(q.Prefix, q.Cursor, limit+1)
	}
	var page store.Page
	if len(names) > limit {
		names = names[:limit]
		page.Next = names[limit-1]
	}
	for _, name := range names {
		s.table.call(name, func(c *rules.Call) error {
			if e := c.Name.(*entry); !e.Empty() {
				page.Locks = append(page.Locks, e.Lock(name, c.Now, c.Unit))
			}
			return nil
		})
	}
	return page, nil
}
