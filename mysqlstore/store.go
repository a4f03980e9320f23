package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/expiring"
	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// minTTL is much longer than a transaction takes on a slow disk.
	minTTL = 200 * time.Millisecond

	// metaFresh is how old the last read of meta may be when a name is granted.
	metaFresh = 2 * time.Second

	// closeTimeout bounds how long Close waits for calls in flight.
	closeTimeout = 2 * time.Second

	// renewals is how many grants are renewed in one statement.
	renewals = 256
)

var (
	_ store.Store = (*Store)(nil)

	// errStuck is the error of calls for rows in Store.stuck.
	errStuck = &mysql.MySQLError{Number: errRowLocked, Message: "the row is still locked"}

	errIncompatible = fmt.Errorf("%w: the tables of the locks were migrated to a version that this program does not know, or are damaged: update this program", store.ErrInvalid)
)

// A Store keeps locks in a MySQL or MariaDB database. Make one with [New], or open it by its URL.
type Store struct {
	db *sql.DB
	config
	sql       statements
	heartbeat time.Duration

	// Renewals do not wait for calls that take names. Release uses the lane of Acquire if it is free.
	takes, gives *lane

	low      int64     // see meta.low; like metaRead, it is used in the lane of Acquire only
	metaRead time.Time // when low was read and this version was compatible

	unanswered expiring.Set[store.ID] // identities of Acquire requests that may still arrive

	// stuck has the names whose rows calls have waited for in vain, mostly because a client hangs.
	stuck expiring.Set[string]

	waits waits
	sweep sweep

	life handle.Life
}

func newStore(db *sql.DB, c config) *Store {
	s := &Store{db: db, config: c, sql: newStatements(c.prefix), heartbeat: heartbeat}
	s.life.Begin("mysql store")
	s.takes, s.gives = s.newLane(), s.newLane()
	s.waits.news, s.waits.Keep = make(chan struct{}, 1), 2*heartbeat
	return s
}

// Capabilities returns what this store supports.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: "mysql",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep |
			store.FeatureList | store.FeatureProcesses | store.FeatureHosts | store.FeatureDurable,
		MinTTL:    minTTL,
		Heartbeat: s.heartbeat,
		Timeout:   callTimeout,
	}
}

// Close ends the store: see [store.Store]. It waits for up to half a second until unused rows are removed, and
// closes the connections of the store, but not a *sql.DB that was passed to New. If a dialer of the application
// hangs, its connection is closed later.
func (s *Store) Close() error {
	s.sweep.await()
	if !s.life.Shut() {
		return nil
	}
	closed := make(chan error, 1)
	go func() { closed <- s.closeAll() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(closeTimeout):
		return fmt.Errorf("mysql store: close: %w", s.usedUp(bounded.ErrNoReply))
	}
}

func (s *Store) closeAll() error {
	s.takes.close()
	s.gives.close()
	s.takes.calls.Close()
	s.gives.calls.Close()
	s.life.Wait()
	s.life.End()
	if s.owned {
		return s.db.Close()
	}
	return nil
}

// background runs f on a goroutine that Close waits for. It returns false after Close.
func (s *Store) background(f func()) bool {
	if !s.life.Enter() {
		return false
	}
	defer s.life.Exit()
	s.life.Go(func(context.Context) { f() })
	return true
}

// explain adds advice to the error of a call.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case err == nil || isOutcome(err) || errors.Is(err, store.ErrClosed):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case s.life.Closing.Err() != nil:
		return s.life.ErrClosed
	}
	return fmt.Errorf("mysql store: %w%s", err, advice(err))
}

// noReply returns the error of a call without a reply in time. It is not that of a context: only the caller's
// context may have that error.
func (s *Store) noReply() error {
	if s.life.Closing.Err() != nil {
		return s.life.ErrClosed
	}
	return s.usedUp(bounded.ErrNoReply)
}

// usedUp adds to the error of a call without a reply that the pool is used up, if it is.
func (s *Store) usedUp(err error) error {
	if stats := s.db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse == stats.MaxOpenConnections {
		return fmt.Errorf("all %d connections of the pool are in use: %w", stats.InUse, err)
	}
	return err
}

// advice says what to do about an error.
func advice(err error) string {
	switch {
	case isNumber(err, errRowLocked):
		return ": another session has locked the row of this name, or the tables; they are freed when that session goes on or is closed"
	case isNumber(err, errTimeLimit):
		return ": max_statement_time is too short for this user, or another session has locked the row of this name"
	case isNumber(err, errNoSuchTable):
		return ": the tables of the locks were removed; run holdfast migrate"
	case isReadOnly(err):
		return ": the server is read-only; connect to the primary"
	case lacksRight(err):
		return ": the user lacks a right, or the tables do not exist: run holdfast migrate, and the GRANT statements of the package documentation, which are also in holdfast help schema"
	case isNumber(err, errUserConns, errUserLimit):
		return ": the user has too few connections: a program that locks needs two; raise MAX_USER_CONNECTIONS of the user"
	case isNumber(err, errWrongPassword):
		return ": check the user and the password"
	case wrongDatabase(err):
		return ": the database does not exist, or the user has no right to it"
	}
	return ""
}

// Acquire makes one attempt to take a name: see [store.Store], and [store.SameClaim] for a repeated request.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	key := keyOf(&req)
	queued, woken := s.waits.state(key)
	c := &call{name: req.Name, req: &req, take: !queued && req.Floor < maxFast, stay: queued && !woken}
	c.do = func(e *entry) (err error) {
		c.answer, err = e.ask(&req)
		if err == nil && !c.answer.Granted() && req.Queue {
			s.waits.expect(key, e.Waiter(req.ID).Seq, c.answer.Refusal.Place)
		}
		return err
	}
	if err := s.do(ctx, s.takes, c); err != nil {
		return store.Answer{}, err
	}
	if c.answer.Granted() || !req.Queue {
		s.waits.Forget(key)
	}
	s.sweepSometimes()
	return c.answer, nil
}

// Release ends a grant, and can keep its name closed for a time: see [store.Store].
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	c := releaseCall(name, id, keep)
	if s.takes.calls.Len() == 0 { // for a single caller, using one connection is faster than alternating between two
		return s.do(ctx, s.takes, c)
	}
	return s.do(ctx, s.gives, c)
}

func keyOf(req *store.Request) wake.Key { return wake.Key{Name: req.Name, ID: req.ID} }

func releaseCall(name string, id store.ID, keep store.Keep) *call {
	return &call{name: name, ends: id, drop: keep.State == store.Held, do: func(e *entry) error { return e.call.Release(id, keep) }}
}

// Leave removes an identity from the queue and releases its grant: see [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	defer s.waits.Forget(wake.Key{Name: name, ID: id})
	// Use the lane of Acquire, so that this call comes after an Acquire in flight.
	return s.do(ctx, s.takes, &call{name: name, ends: id, do: func(e *entry) error {
		e.call.Leave(id)
		return nil
	}})
}

// Break ends a grant or a kept record by force: see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.do(ctx, s.gives, &call{name: name, do: func(e *entry) error {
		if h := e.Holder(id); h != nil && h.State == store.Held {
			e.noteEnd(id) // only its holder knows whether one of its requests has no reply
		}
		return e.call.Break(id)
	}})
}

// Renew extends grants: see [store.Store]. The error is [store.ErrInvalid] also for a floor with no token above it.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.life.Usable(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	calls := make([]*call, len(grants))
	for i, g := range grants {
		c := &call{name: g.Name, renewal: &g}
		c.do = func(e *entry) error {
			c.renewed = e.call.Renew(&g)
			return nil
		}
		calls[i] = c
	}
	done := make(chan error, 1)
	if !s.background(func() { done <- s.renew(limited, calls) }) {
		return nil, s.life.ErrClosed
	}
	var err error
	select {
	case err = <-done:
	case <-limited.Done():
		err = limited.Err()
	}
	switch {
	case err == nil:
		s.sweepSometimes()
		return s.outcomes(ctx, calls)
	case ctx.Err() != nil:
		return nil, s.usedUp(ctx.Err())
	}
	return nil, s.explain(ctx, s.noReply())
}

// renew makes renewals. The end of ctx does not end those that were sent: finding out which rows a hung client
// has locked may take longer than the caller waits, and the next renewal must know. A client renews each
// contended name before it hands it over. These share transactions, or other renewals would be late.
func (s *Store) renew(ctx context.Context, calls []*call) error {
	if len(calls) == 1 {
		_, err := s.gives.calls.Do(ctx, calls[0], func() { s.gives.send(context.Background(), calls) })
		if err != nil {
			calls[0].left.Store(true)
		}
		return err
	}
	for part := range slices.Chunk(calls, renewals) {
		if ctx.Err() != nil {
			return ctx.Err() // the caller renews them again
		}
		s.gives.send(context.Background(), part)
	}
	return nil
}

// outcomes returns the outcomes of renewals, or an error if all calls have failed.
func (s *Store) outcomes(ctx context.Context, calls []*call) ([]store.Renewed, error) {
	outcomes, failed := make([]store.Renewed, len(calls)), 0
	for i, c := range calls {
		outcomes[i] = c.renewed
		if c.err != nil {
			outcomes[i] = store.Renewed{Err: s.explain(ctx, c.err)}
			failed++
		}
	}
	if failed > 0 && failed == len(calls) {
		return nil, outcomes[failed-1].Err
	}
	return outcomes, nil
}
