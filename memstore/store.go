// Package memstore keeps locks in the memory of this process. It is meant for tests and for
// programs that run as a single process, and it is the reference for all other stores.
//
// Its promises hold within one process: another process does not see its locks, and nothing
// survives the end of the process, not even tokens. Use a store on a server to protect a
// resource that outlives the process.
//
// Times are measured by the monotonic clock of the process, so changes of the wall clock have
// no effect. Tokens come from one counter for the whole store and start at 1. A
// [store.Request] with a high Floor raises the tokens of every name.
//
// The store has no goroutine and no timer. Expired grants and waiters are removed by the next
// call on their name, and otherwise step by step by calls on other names.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// heartbeat is how long a waiter that stopped asking keeps its place. A waiter does not
	// crash without its whole process, but a client may end without a call of Leave, so the
	// heartbeat is short. It must be longer than the delays of a busy scheduler.
	heartbeat = 5 * time.Second

	// minTTL is far above the resolution of the clock. With shorter TTLs a loaded machine
	// would lose leases by scheduling delays alone.
	minTTL = 10 * time.Millisecond
)

var (
	_ store.Store = (*Store)(nil)

	errClosed = fmt.Errorf("memory store: %w", store.ErrClosed)
)

// A Store is a handle on locks in memory. Use [New] for a private one, or open a shared one by
// its URL, "memory:" or "memory:NAME".
type Store struct {
	table  *table
	closed atomic.Bool
	done   chan struct{} // closed by Close
	once   sync.Once
	free   func() // drops the reference to a shared table; nil for a private store
}

// New returns an empty store that is not shared with any other handle.
func New() *Store { return &Store{table: newTable(), done: make(chan struct{})} }

// Capabilities returns what this store supports. It does not support FeatureProcesses,
// FeatureHosts, FeatureDurable or FeatureFailover.
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

// Close closes this handle: calls blocked in Wait end, and later calls fail with
// [store.ErrClosed]. Its grants that were not released stay visible to other handles until
// their TTL is over. A second Close does nothing.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		close(s.done)
		if s.free != nil {
			s.free()
		}
	})
	return nil
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// Acquire makes one attempt to take a name; see [store.Store]. It returns an error that matches
// [store.ErrInvalid] if a request under the identity of a live grant or waiter has another
// mode, weight or limit.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if err := s.usable(ctx); err != nil {
		return store.Answer{}, err
	}
	sh, hash := s.table.shard(req.Name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.table.now()
	sh.sweep(now)
	e := sh.find(req.Name, hash)
	if e == nil {
		e = sh.add(req.Name, hash)
	}
	answer, err := s.table.ask(e, &req, now)
	if err != nil { // an error leaves nothing queued
		if w := e.queue.find(req.ID); w != nil {
			e.dequeue(w)
		}
	}
	sh.tidy(e)
	return answer, err
}

func (t *table) ask(e *entry, req *store.Request, now int64) (store.Answer, error) {
	e.settle(now)
	h := e.find(req.ID)
	if h != nil && h.state == store.Held {
		if err := h.claim.same(req); err != nil {
			return store.Answer{}, err
		}
		e.extend(h, after(now, req.TTL))
		return store.Answer{Token: h.token, Tokens: int(h.tokens), TTL: req.TTL, Waiters: e.queue.n}, nil
	}
	w := e.queue.find(req.ID)
	if w != nil {
		if err := w.claim.same(req); err != nil {
			return store.Answer{}, err
		}
	}
	if err := e.mixes(req); err != nil {
		return store.Answer{}, err
	}
	// A kept record of this identity means that its grant has ended. The identity must not be
	// granted again beside its own record.
	fits := h == nil && e.admits(req.Mode, req.Weight, req.Limit)
	if !fits || e.queue.first != w { // w and first are nil if the queue is empty
		return store.Answer{Refusal: t.refuse(e, w, req, fits, now)}, nil
	}
	token, tokens, err := t.reserve(req.Tokens, req.Floor)
	if err != nil {
		return store.Answer{}, err
	}
	e.grant(req, token, tokens, now)
	if w != nil {
		e.dequeue(w) // after the grant, so that the next waiter is woken only if it fits beside it
	}
	return store.Answer{Token: token, Tokens: tokens, TTL: req.TTL, Waiters: e.queue.n}, nil
}

// Leave removes an identity from the queue and releases its grant; see [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	return s.with(ctx, name, func(e *entry, _ int64) error {
		if e == nil {
			return nil
		}
		if h := e.find(id); h != nil && h.state == store.Held {
			e.remove(h)
			e.wakeHead()
		}
		if w := e.queue.find(id); w != nil {
			e.dequeue(w)
		}
		return nil
	})
}

// Break ends a grant or a kept record by force; see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.with(ctx, name, func(e *entry, _ int64) error {
		h := e.find(id)
		if h == nil {
			return store.ErrNotHeld
		}
		e.remove(h)
		e.wakeHead()
		return nil
	})
}

// Release ends a grant, or keeps its name closed for a time; see [store.Store]. It returns an
// error that matches [store.ErrInvalid], and leaves the grant as it was, if keep is malformed,
// or is Done for a grant that is not exclusive.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	return s.with(ctx, name, func(e *entry, now int64) error {
		h := e.find(id)
		if h == nil || h.state != store.Held {
			return store.ErrNotHeld
		}
		switch keep.State {
		case store.Held:
			e.remove(h)
			e.wakeHead()
		case store.Done:
			if err := store.CheckDone(keep, h.mode); err != nil {
				return err
			}
			e.keep(h, keep, now)
			e.wakeAll() // any waiter may wait for the work to be done
		case store.Cooling:
			e.keep(h, keep, now)
			e.wakeHead()
		}
		return nil
	})
}

// Renew extends grants; see [store.Store]. It returns an error that matches [store.ErrInvalid] if
// a renewal changes the mode other than from exclusive to shared, or has a floor with no token
// above it. Grants before it in the argument are extended nevertheless.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	outcomes := make([]store.Renewed, len(grants))
	for i := range grants {
		var err error
		if outcomes[i], err = s.table.renew(&grants[i]); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func (t *table) renew(r *store.Renewal) (store.Renewed, error) {
	gone := store.Renewed{Status: store.Gone}
	sh, hash := t.shard(r.Name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(r.Name, hash)
	if e == nil {
		return gone, nil
	}
	now := t.now()
	e.settle(now)
	defer sh.tidy(e)
	h := e.find(r.ID)
	if h == nil || h.state != store.Held {
		return gone, nil
	}
	if err := store.CheckRenewal(r, h.mode); err != nil {
		return gone, err
	}
	renewed := store.Renewed{Status: store.Extended, TTL: r.TTL}
	if r.Tokens > 0 && e.queue.n == 0 {
		var err error
		if renewed.Token, renewed.Tokens, err = t.reserve(r.Tokens, r.Floor); err != nil {
			return gone, err
		}
		h.token, h.tokens = renewed.Token, int32(renewed.Tokens)
	} else if err := t.raise(r.Floor); err != nil {
		return gone, err
	}
	e.extend(h, after(now, r.TTL))
	if r.Mode != h.mode {
		h.mode = store.Shared
		e.wakeHead()
	}
	return renewed, nil
}

// with removes expired holders and waiters from the entry of a name. Then it calls f with the
// entry, or with nil if there is none.
func (s *Store) with(ctx context.Context, name string, f func(e *entry, now int64) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	sh, hash := s.table.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(name, hash)
	if e == nil {
		return f(nil, 0)
	}
	now := s.table.now()
	e.settle(now)
	err := f(e, now)
	sh.tidy(e)
	return err
}
