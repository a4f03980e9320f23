package sqlitestore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// heartbeat is how long a waiter that stopped asking keeps its place, and delays the next one.
	heartbeat = 2 * time.Second

	// minTTL is longer than a checkpoint on a slow disk, during which no lease can be renewed.
	minTTL = 100 * time.Millisecond

	// maxRenewals is how many grants are renewed in one transaction, which takes about two milliseconds.
	maxRenewals = 256
)

var _ store.Store = (*Store)(nil)

// A Store is a handle on a file of locks. Make one with [Open], or by a URL: "sqlite:PATH".
type Store struct {
	file  file
	clock clock

	logSize   int64         // see maxLog
	heartbeat time.Duration // the constant of that name, except in tests

	writes   writeQueue // its turn guards the fields up to sweepTo
	conn     *conn
	base     int64  // see meta.base
	last     int64  // highest token granted through this handle
	commits  int    // through this handle
	checked  int64  // when the file was last checked
	recorded int64  // when meta.seen was last written; 0 until the file is set up
	swept    int64  // when names were last swept
	sweepTo  string // the last name swept

	readTurn chan struct{} // guards read
	read     *conn         // for listings; nil until the first listing

	pushes pushes
	life   handle.Life
}

// Capabilities returns what this store supports: all features that do not need several hosts.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: "sqlite",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep |
			store.FeatureList | store.FeatureProcesses | store.FeatureDurable,
		MinTTL:    minTTL,
		Heartbeat: s.heartbeat,
	}
}

// Close closes this handle; see [store.Store].
//
// When the last handle of all processes is closed, SQLite removes the -wal and -shm files.
func (s *Store) Close() error {
	if !s.life.Shut() {
		return nil
	}
	defer s.life.End()
	s.pushes.close()
	s.writes.turn <- struct{}{} // for good
	s.readTurn <- struct{}{}
	var err error
	if s.read != nil {
		err = s.read.close()
	}
	return s.explain(cmp.Or(s.conn.close(), err))
}

// Acquire makes one attempt to take a name; see [store.Store], and [store.SameClaim] for a repeated request.
func (s *Store) Acquire(ctx context.Context, req store.Request) (answer store.Answer, err error) {
	err = s.write(ctx, 1, func(tx *callTx) (err error) {
		answer, err = tx.acquire(&req)
		return err
	})
	if err != nil {
		return store.Answer{}, err
	}
	if answer.Granted() || !req.Queue {
		s.pushes.waits.Forget(wake.Key{Name: req.Name, ID: req.ID})
	}
	return answer, nil
}

func (tx *callTx) acquire(req *store.Request) (answer store.Answer, err error) {
	token := tx.tokenAt(tx.now)
	if req.Tokens <= 1 && token > req.Floor && token > tx.last && token <= store.MaxToken {
		n, err := tx.conn.exec(sqlTake, req.Name, req.ID[:], int64(req.Mode), int64(req.Weight), int64(req.Limit),
			token, tx.now, after(tx.now, req.TTL), req.Owner, req.Meta, tx.base, token)
		if n == 1 && !tx.clock.steady {
			_, err = tx.conn.exec(sqlPutLow, token)
		}
		if err != nil {
			return answer, err
		}
		if n == 1 { // the name was free and had no waiters
			tx.last = token
			return store.Answer{Token: token, Tokens: 1, TTL: req.TTL}, tx.sweep()
		}
	}
	err = tx.onName(req.Name, func(e *entry, call *rules.Call) (err error) {
		answer, err = call.Ask(req)
		if e.polls {
			answer.Refusal.Again = min(answer.Refusal.Again, pollEvery)
		}
		return err
	})
	if err == nil || errors.Is(err, store.ErrInvalid) {
		err = cmp.Or(tx.sweep(), err)
	}
	return answer, err
}

// Release ends a grant, or keeps its name closed for a time; see [store.Store].
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	plain := keep.State == store.Held
	if plain && s.life.Usable(ctx) == nil && s.writes.tryTurn() { // no other call to share a transaction with
		n, err := s.conn.exec(sqlDrop, name, id[:], s.clock.now())
		err = s.checkTables(s.conn, err)
		s.writes.endTurn()
		if n == 1 || err != nil && !busy(err) && !full(err) {
			return s.explain(err)
		}
		plain = err != nil
	}
	return s.write(ctx, 1, func(tx *callTx) error {
		if plain {
			n, err := s.conn.exec(sqlDrop, name, id[:], tx.now)
			if n == 1 || err != nil {
				return err
			}
		}
		return tx.onName(name, func(_ *entry, c *rules.Call) error { return c.Release(id, keep) })
	})
}

// Leave removes an identity from the queue and releases its grant; see [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	defer s.pushes.waits.Forget(wake.Key{Name: name, ID: id})
	return s.write(ctx, 1, func(tx *callTx) error {
		return tx.onName(name, func(_ *entry, c *rules.Call) error {
			c.Leave(id)
			return nil
		})
	})
}

// Break ends a grant or a kept record by force; see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.write(ctx, 1, func(tx *callTx) error {
		return tx.onName(name, func(_ *entry, c *rules.Call) error { return c.Break(id) })
	})
}

// Renew extends grants; see [store.Store]. The error is [store.ErrInvalid] also for a floor with no token above it.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if len(grants) == 0 {
		return nil, s.life.Usable(ctx)
	}
	outcomes := make([]store.Renewed, len(grants))
	for first := 0; first < len(grants); first += maxRenewals {
		part := grants[first:min(first+maxRenewals, len(grants))]
		err := s.write(ctx, len(part), func(tx *callTx) error {
			// Always check, because a process that opens the path now must know of extended grants.
			err := tx.file.check()
			for i := 0; err == nil && i < len(part); i++ {
				outcomes[first+i], err = tx.renew(&part[i])
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func (tx *callTx) renew(r *store.Renewal) (renewed store.Renewed, err error) {
	if r.Tokens == 0 && tx.covers(r.Floor) {
		until := after(tx.now, r.TTL)
		for _, extend := range []string{sqlExtend, sqlExtendHolder} {
			n, err := tx.conn.exec(extend, until, r.Name, r.ID[:], int64(r.Mode), tx.now)
			if n == 1 || err != nil {
				return store.Renewed{Status: store.Extended, TTL: r.TTL}, err
			}
		}
	}
	err = tx.onName(r.Name, func(_ *entry, c *rules.Call) error {
		renewed = c.Renew(r)
		return renewed.Err
	})
	if errors.Is(err, store.ErrInvalid) { // concerns this grant only
		err = nil
	}
	return renewed, err
}
