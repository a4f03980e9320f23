// Package memstore keeps locks in the memory of this process. It is for tests, for
// programs that run once, and as the reference that the other stores are compared with.
//
// What it promises holds within one process: another process does not see its locks, and
// nothing survives the end of the process, tokens included. Protect what outlives the
// process with a store on a server.
//
// Time is the process's monotonic clock, so that setting the wall clock changes nothing.
// Tokens come from one counter for the whole store and start at 1; a [store.Request] with
// a high Floor raises them for every name.
//
// The store has no goroutine and no timer. What expired is removed when somebody asks for
// its name, and otherwise little by little as other names are asked for.
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
	// heartbeat is how long a waiter that stopped asking keeps its place. In one process
	// waiters do not die on their own, so it only has to outlast a busy scheduler or a
	// pause in a debugger, and to stay short for a client that was closed without leaving.
	heartbeat = 5 * time.Second

	// minTTL is far above what the clock resolves; below it a loaded machine loses leases
	// just by being late.
	minTTL = 10 * time.Millisecond
)

var (
	_ store.Store = (*Store)(nil)

	errClosed = fmt.Errorf("memory store: %w", store.ErrClosed)
)

// Store is a handle on locks kept in memory. Make one with [New], or open a shared one by
// its URL, "memory:" or "memory:NAME".
type Store struct {
	table  *table
	closed atomic.Bool
	done   chan struct{} // closed by Close
	once   sync.Once
	free   func() // gives back a shared table; nil for a store of its own
}

// New returns an empty store that nothing else shares.
func New() *Store { return &Store{table: newTable(), done: make(chan struct{})} }

// Capabilities tells what this store can do. It has no FeatureProcesses and nothing beyond.
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

// Close ends this handle: its waiting calls end, and later ones fail with
// [store.ErrClosed]. What was taken through it and not released stays for others to see
// until its TTL is over. Closing again does nothing.
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

// Acquire makes one attempt to take a name: see [store.Store]. Asking again under the
// identity of a live grant or waiter in another mode, weight or limit is an ErrInvalid.
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
	if err != nil { // leaves nothing queued
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
	// A kept record of this identity is a grant that ended: it must not come back to life
	// beside its own record.
	fits := h == nil && e.admits(req.Mode, req.Weight, req.Limit)
	if !fits || e.queue.first != w { // nil if nobody waits
		return store.Answer{Refusal: t.refuse(e, w, req, fits, now)}, nil
	}
	token, tokens, err := t.reserve(req.Tokens, req.Floor)
	if err != nil {
		return store.Answer{}, err
	}
	e.grant(req, token, tokens, now)
	if w != nil {
		e.dequeue(w) // after the grant, so that the next is woken only if it fits beside it
	}
	return store.Answer{Token: token, Tokens: tokens, TTL: req.TTL, Waiters: e.queue.n}, nil
}

// Leave takes an identity out of the queue and gives back its grant: see [store.Store].
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

// Break ends a grant or a closure by force: see [store.Store].
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

// Release ends a grant or closes its name for a time: see [store.Store].
//
// ErrInvalid: the Keep has no sense, or is Done for a grant that is not exclusive. The
// grant is held as before then.
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
			if h.mode != store.Exclusive {
				return fmt.Errorf("%w: keep as done: the grant is %s; only an exclusive one can close its name as done", store.ErrInvalid, h.mode)
			}
			e.keep(h, keep, now)
			e.wakeAll() // whoever waits for the work to be done, wherever in the queue
		case store.Cooling:
			e.keep(h, keep, now)
			e.wakeHead()
		}
		return nil
	})
}

// Renew extends grants: see [store.Store]. ErrInvalid: one of them changes its mode other
// than from exclusive to shared, or has a floor with no token above it. Those in front of
// it in the argument are extended all the same.
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
	down := r.Mode == store.Shared && h.mode == store.Exclusive
	if r.Mode != h.mode && !down {
		return gone, fmt.Errorf("%w: renew %q: held in %s mode, asked for %s: a grant keeps its mode or steps down from exclusive to shared", store.ErrInvalid, r.Name, h.mode, r.Mode)
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
	if down {
		h.mode = store.Shared
		e.wakeHead()
	}
	return renewed, nil
}

// with calls f with what is alive of a name, or with nil if nothing is.
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
