package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// heartbeat is how long a waiter that stopped asking keeps its place. A dead one
	// delays the next by that much, a live one that is paused for longer loses its place.
	heartbeat = 2 * time.Second

	// minTTL is above what a checkpoint takes on a slow disk, during which nobody can
	// renew.
	minTTL = 100 * time.Millisecond

	// maxRenewals is how many grants are renewed in one transaction. Others wait
	// meanwhile, for about two milliseconds.
	maxRenewals = 256
)

var (
	_ store.Store = (*Store)(nil)

	errClosed = fmt.Errorf("sqlite store: %w", store.ErrClosed)
)

// A Store is a handle on a file of locks. Make one with [Open], or by a URL of the
// form "sqlite:PATH".
type Store struct {
	file  file
	dsn   string
	clock clock
	base  int64 // see meta.base

	heartbeat time.Duration // heartbeat, but for tests

	turn     turn // needed to use what follows
	conn     *conn
	last     int64  // highest token granted through this handle
	checked  int64  // when the file was
	recorded int64  // when meta.seen was; 0 until the file is set up
	swept    int64  // when some names were
	sweepTo  string // the last of them

	readTurn chan struct{} // likewise
	read     *conn         // for listings; nil until the first

	pushes pushes
	closed atomic.Bool
	done   chan struct{} // closed by Close
	once   sync.Once
}

// Capabilities tells what this store can do: everything within one host.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: "sqlite",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep |
			store.FeatureList | store.FeatureProcesses | store.FeatureDurable,
		MinTTL:    minTTL,
		Heartbeat: s.heartbeat,
	}
}

// Close ends this handle: its waiting calls end, and later ones fail with
// [store.ErrClosed]. What was taken through it and not released stays for others to see
// until its TTL is over. Closing again does nothing.
//
// The last handle that any process has on the file removes the files beside it.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		s.closed.Store(true)
		close(s.done)
		s.pushes.close()
		s.turn.taken <- struct{}{} // for good
		s.readTurn <- struct{}{}
		if s.read != nil {
			err = s.read.close()
		}
		if closeErr := s.conn.close(); closeErr != nil {
			err = closeErr
		}
		err = s.explain(err)
	})
	return err
}

// Acquire makes one attempt to take a name: see [store.Store]. Asking again under the
// identity of a live grant or waiter in another mode, weight or limit is an ErrInvalid.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	call := &acquire{req: req}
	if err := s.write(ctx, call); err != nil {
		return store.Answer{}, err
	}
	if call.answer.Granted() || !req.Queue {
		s.pushes.forget(req.Name, req.ID)
	}
	return call.answer, nil
}

type acquire struct {
	req    store.Request
	answer store.Answer
}

func (c *acquire) do(tx *transaction) error {
	req := &c.req
	token := tx.tokenAt(tx.now)
	if req.Tokens <= 1 && token > req.Floor && token > tx.last {
		n, err := tx.conn.exec(sqlTake, req.Name, req.ID[:], int64(req.Mode), int64(req.Weight), int64(req.Limit),
			token, tx.now, tx.now+int64(req.TTL), req.Owner, req.Meta, token)
		if err != nil {
			return err
		}
		if n == 1 { // it was free, and nobody waited for it
			c.answer = store.Answer{Token: token, Tokens: 1, TTL: req.TTL}
			tx.last = token
			if !tx.clock.steady {
				if _, err := tx.conn.exec(sqlPutLow, token); err != nil {
					return err
				}
			}
			return tx.sweep()
		}
	}
	e, err := tx.load(req.Name)
	if err != nil {
		return err
	}
	var invalid error
	c.answer, err = tx.ask(e, req)
	if errors.Is(err, store.ErrInvalid) { // leaves nothing queued
		invalid, err = err, e.dequeue(req.ID)
	}
	if err == nil {
		err = e.store()
	}
	if err == nil {
		err = tx.sweep()
	}
	if err == nil {
		err = invalid
	}
	return err
}

// Release ends a grant or closes its name for a time: see [store.Store].
//
// ErrInvalid: the Keep has no sense, or is Done for a grant that is not exclusive. The
// grant is held as before then.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	plain := keep.State == store.Held
	if plain && s.usable(ctx) == nil && s.turn.try() { // nobody to share a transaction with
		n, err := s.conn.exec(sqlDrop, name, id[:], s.clock.now())
		s.turn.end()
		if n == 1 || err != nil && !busy(err) {
			return s.explain(err)
		}
		plain = err != nil
	}
	return s.write(ctx, callFunc(func(tx *transaction) error {
		if plain {
			n, err := s.conn.exec(sqlDrop, name, id[:], tx.now)
			if n == 1 || err != nil {
				return err
			}
		}
		return tx.release(name, id, keep)
	}))
}

// release is for a name that others hold or wait for, and for a release that keeps it.
func (tx *transaction) release(name string, id store.ID, keep store.Keep) error {
	e, err := tx.load(name)
	if err != nil {
		return err
	}
	g, err := e.find(id)
	if err != nil {
		return err
	}
	if g == nil || g.state != store.Held {
		return e.storeThen(store.ErrNotHeld)
	}
	switch keep.State {
	case store.Held:
		err = e.remove(g)
	case store.Done:
		if g.mode != store.Exclusive {
			return fmt.Errorf("%w: keep as done: the grant is %s; only an exclusive one can close its name as done", store.ErrInvalid, g.mode)
		}
		if err = e.keep(g, keep); err == nil {
			err = e.wakeAll() // whoever waits for the work to be done, wherever in the queue
		}
	case store.Cooling:
		err = e.keep(g, keep)
	}
	if err != nil {
		return err
	}
	return e.store()
}

// Leave takes an identity out of the queue and gives back its grant: see [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	defer s.pushes.forget(name, id)
	return s.write(ctx, callFunc(func(tx *transaction) error {
		e, err := tx.load(name)
		if err != nil {
			return err
		}
		g, err := e.find(id)
		if err == nil && g != nil && g.state == store.Held {
			err = e.remove(g)
		}
		if err == nil {
			err = e.dequeue(id)
		}
		if err != nil {
			return err
		}
		return e.store()
	}))
}

// Break ends a grant or a closure by force: see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.write(ctx, callFunc(func(tx *transaction) error {
		e, err := tx.load(name)
		if err != nil {
			return err
		}
		g, err := e.find(id)
		if err != nil {
			return err
		}
		if g == nil {
			return e.storeThen(store.ErrNotHeld)
		}
		if err := e.remove(g); err != nil {
			return err
		}
		return e.store()
	}))
}

// Renew extends grants: see [store.Store]. ErrInvalid: one of them changes its mode other
// than from exclusive to shared, or has a floor with no token above it.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if len(grants) == 0 {
		return nil, s.usable(ctx)
	}
	outcomes := make([]store.Renewed, len(grants))
	for first := 0; first < len(grants); first += maxRenewals {
		part := grants[first:min(first+maxRenewals, len(grants))]
		call := callFunc(func(tx *transaction) error {
			// Always: nobody who opens the path now would know of what is extended here.
			err := tx.file.check()
			for i := 0; err == nil && i < len(part); i++ {
				outcomes[first+i], err = tx.renew(&part[i])
			}
			return err
		})
		if err := s.writeMany(ctx, call, len(part)); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func (tx *transaction) renew(r *store.Renewal) (store.Renewed, error) {
	extended := store.Renewed{Status: store.Extended, TTL: r.TTL}
	until := tx.now + int64(r.TTL)
	if r.Tokens == 0 && tx.covers(r.Floor) {
		n, err := tx.conn.exec(sqlExtend, until, r.Name, r.ID[:], int64(r.Mode), tx.now)
		if n == 1 || err != nil {
			return extended, err
		}
	}
	e, err := tx.load(r.Name)
	if err != nil {
		return store.Renewed{}, err
	}
	g, err := e.find(r.ID)
	if err != nil {
		return store.Renewed{}, err
	}
	if g == nil || g.state != store.Held {
		return store.Renewed{Status: store.Gone}, e.store()
	}
	down := r.Mode == store.Shared && g.mode == store.Exclusive
	if r.Mode != g.mode && !down {
		return store.Renewed{}, fmt.Errorf("%w: renew %q: held in %s mode, asked for %s: a grant keeps its mode or steps down from exclusive to shared", store.ErrInvalid, r.Name, g.mode, r.Mode)
	}
	if r.Tokens > 0 && e.waiters == 0 {
		g.token, g.tokens, err = tx.reserve(r.Tokens, r.Floor)
		extended.Token, extended.Tokens = g.token, g.tokens
	} else {
		err = tx.raise(r.Floor)
	}
	if err != nil {
		return store.Renewed{}, err
	}
	g.until = until
	if down {
		g.mode = store.Shared
		e.freed = true
	}
	if err := e.update(g); err != nil {
		return store.Renewed{}, err
	}
	return extended, e.store()
}
