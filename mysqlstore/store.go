package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/batch"
	"github.com/holdfast-lock/holdfast/internal/stores/unanswered"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// minTTL is much longer than a transaction takes on a slow disk.
	minTTL = 200 * time.Millisecond

	// metaFresh is how old the last read of meta may be when a name is granted.
	metaFresh = 2 * time.Second

	// renewals is how many grants are renewed in one statement.
	renewals = 256
)

var (
	_ store.Store = (*Store)(nil)

	errClosed       = fmt.Errorf("mysql store: %w", store.ErrClosed)
	errIncompatible = fmt.Errorf("%w: the tables of the locks were migrated to a version that this program does not know, or are damaged: update this program", store.ErrInvalid)
)

// A Store keeps locks in a MySQL or MariaDB database. Make one with [New], or open it by its URL.
type Store struct {
	db        *sql.DB
	owned     bool // db is closed with the store
	database  string
	prefix    string
	sql       statements
	heartbeat time.Duration

	// Renewals have a lane of their own, so that they do not wait for calls that take names.
	// Release uses the lane of Acquire if it is free.
	takes, gives         *lane
	takeCalls, giveCalls *batch.Batcher[call]
	renewCalls           batch.Batcher[renewal]

	low      int64     // see meta.low; like metaRead, it is used in the lane of Acquire only
	metaRead time.Time // when low was read and this version was compatible

	unanswered unanswered.Set // identities of Acquire requests that may still arrive

	renewing sync.Mutex // held during a renewal
	stuck    stuckRows

	waits waits
	sweep sweep

	life context.Context // ends with Close
	end  context.CancelFunc
	mu   sync.Mutex     // held to start background work, so that none starts during Close
	work sync.WaitGroup // goroutines in the background
	once sync.Once
}

func newStore(db *sql.DB, c config) *Store {
	s := &Store{db: db, owned: c.owned, database: c.database, prefix: c.prefix, sql: newStatements(c.prefix), heartbeat: c.heartbeat}
	s.life, s.end = context.WithCancel(context.Background())
	s.takes, s.gives = s.newLane(), s.newLane()
	s.takeCalls, s.giveCalls = s.takes.calls(), s.gives.calls()
	s.renewCalls = batch.Batcher[renewal]{MaxInFlight: 1, MaxBatch: renewals, Send: s.renewTogether}
	s.waits.news, s.waits.keep = make(chan struct{}, 1), 2*c.heartbeat
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

// Close ends the store: calls in flight end, including those that are blocked in Wait, and later
// calls return [store.ErrClosed]. Grants stay until they are released or their TTL is over. A
// second Close does nothing. A *sql.DB that was passed to New stays open. The connections that
// the store used are closed. Close waits for up to half a second until unused rows are removed, and
// then not longer than a call may take: if a dialer of the application takes longer, its connection
// is closed later.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		s.sweep.await()
		s.mu.Lock()
		s.end()
		s.mu.Unlock()
		closed := make(chan error, 1)
		go func() { closed <- s.closeAll() }()
		select {
		case err = <-closed:
		case <-time.After(callTimeout):
			err = fmt.Errorf("mysql store: close: %w", s.noReply())
		}
	})
	return err
}

func (s *Store) closeAll() error {
	s.takes.close()
	s.gives.close()
	s.takeCalls.Close()
	s.giveCalls.Close()
	s.renewCalls.Close()
	s.work.Wait()
	if s.owned {
		return s.db.Close()
	}
	return nil
}

// background runs f on a goroutine that Close waits for. It returns false after Close.
func (s *Store) background(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return false
	}
	s.work.Go(f)
	return true
}

func (s *Store) usable(ctx context.Context) error {
	if s.life.Err() != nil {
		return errClosed
	}
	return ctx.Err()
}

// explain adds advice to the error of a call.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case err == nil || isOutcome(err) || errors.Is(err, store.ErrClosed):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case s.life.Err() != nil:
		return errClosed
	}
	return fmt.Errorf("mysql store: %w%s", err, advice(err))
}

// noReply returns the error of a call that had no reply in time. It does not match the errors of
// contexts, because that of the caller has not ended.
func (s *Store) noReply() error { return s.usedUp(bounded.ErrNoReply) }

// usedUp returns the error of a call without a reply. If the pool is used up, it adds that to the
// error.
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

// Acquire makes one attempt to take a name: see [store.Store]. It returns [store.ErrInvalid] if
// the name is held or requested with another limit or in a mode that cannot be combined with the
// request, or if the identity of a live grant or waiter asks for another mode, weight or limit.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	var answer store.Answer
	c := &call{name: req.Name, born: true}
	c.answered = func(a store.Answer) { answer = a }
	switch queued, woken := s.waits.state(req.Name, req.ID); {
	case !queued && req.Floor < maxFast:
		c.take = &req
	case queued && !woken:
		c.stay = &req
	}
	c.do = func(e *entry) (err error) {
		answer, err = e.ask(&req)
		if err == nil && !answer.Granted() && req.Queue {
			s.waits.expect(e.name, e.Waiter(req.ID), e.refusal(&req, answer.Refusal))
		}
		return err
	}
	if err := s.do(ctx, s.takes, s.takeCalls, c); err != nil {
		return store.Answer{}, err
	}
	if answer.Granted() || !req.Queue {
		s.waits.forget(req.Name, req.ID)
	}
	s.sweepSometimes()
	return answer, nil
}

// Release ends a grant, and can keep its name closed for a time: see [store.Store]. It returns
// [store.ErrNotHeld] if there is no such grant, and [store.ErrInvalid], without changing the
// grant, if keep is malformed or is Done for a grant that is not exclusive.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	c := releaseCall(name, id, keep)
	if s.takeCalls.Len() == 0 { // for a single caller, using one connection is faster than alternating between two
		return s.do(ctx, s.takes, s.takeCalls, c)
	}
	return s.do(ctx, s.gives, s.giveCalls, c)
}

func releaseCall(name string, id store.ID, keep store.Keep) *call {
	return &call{name: name, ends: id, drop: keep.State == store.Held, do: func(e *entry) error { return e.call.Release(id, keep) }}
}

// Leave removes an identity from the queue and releases its grant: see [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	defer s.waits.forget(name, id)
	// Use the lane of Acquire, so that this call comes after an Acquire in flight.
	return s.do(ctx, s.takes, s.takeCalls, &call{name: name, ends: id, do: func(e *entry) error {
		e.call.Leave(id)
		return nil
	}})
}

// Break ends a grant or a kept record by force: see [store.Store]. It returns [store.ErrNotHeld]
// if that identity does not hold the name.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.do(ctx, s.gives, s.giveCalls, &call{name: name, do: func(e *entry) error {
		if h := e.Holder(id); h != nil && h.State == store.Held {
			e.noteEnd(id) // only its holder knows whether one of its requests has no reply
		}
		return e.call.Break(id)
	}})
}

// Renew extends grants: see [store.Store]. It returns [store.ErrInvalid] if one of them changes
// its mode other than from exclusive to shared, or has a floor with no token above it.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r := &renewal{ctx: limited, grants: slices.Clone(grants), outcomes: make([]store.Renewed, len(grants))}
	done := make(chan error, 1)
	started := s.background(func() {
		_, err := s.renewCalls.Do(limited, r, func() { r.err = s.renewParts(limited, r.grants, r.outcomes) })
		if err == nil {
			err = r.err
		}
		done <- err
	})
	if !started {
		return nil, errClosed
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
		return r.outcomes, nil
	case ctx.Err() != nil:
		return nil, s.usedUp(ctx.Err())
	case limited.Err() != nil:
		err = s.noReply()
	}
	return nil, s.explain(ctx, err)
}

// A renewal is a call of Renew.
type renewal struct {
	ctx      context.Context
	grants   []store.Renewal
	outcomes []store.Renewed
	err      error
}

// renewTogether makes calls of Renew together. A client with many contended names renews each of
// them before it hands it over. If these renewals took turns, those of other leases would be late.
func (s *Store) renewTogether(calls []*renewal) (refused bool) {
	var grants []store.Renewal
	var live []*renewal
	names := make(map[string]struct{})
	for _, r := range calls {
		if r.err = r.ctx.Err(); r.err == nil { // otherwise the caller renews them again
			live = append(live, r)
			grants = append(grants, r.grants...)
		}
	}
	for i := range grants {
		names[grants[i].Name] = struct{}{}
	}
	if len(names) < len(grants) {
		return true // a transaction has one call for each name
	}
	outcomes := make([]store.Renewed, len(grants))
	err := s.renewParts(s.life, grants, outcomes)
	if isOutcome(err) {
		return true // one of the renewals is invalid
	}
	for _, r := range live {
		r.err = err
		copy(r.outcomes, outcomes)
		outcomes = outcomes[len(r.outcomes):]
	}
	return false
}

// renewParts extends grants, with a limited number in one statement.
func (s *Store) renewParts(ctx context.Context, grants []store.Renewal, outcomes []store.Renewed) (err error) {
	for first := 0; err == nil && first < len(grants); first += renewals {
		end := min(first+renewals, len(grants))
		err = s.renew(ctx, grants[first:end], outcomes[first:end])
	}
	return err
}

// renew extends grants. If a hung client has locked some of their rows, the outcomes of those grants
// are unknown, and the others are renewed nevertheless. Waiting for a locked row may take longer than
// the caller waits for a renewal, so later renewals do not wait for it again. Renewals take turns, so
// that one that has begun meanwhile does not wait for it either.
func (s *Store) renew(ctx context.Context, grants []store.Renewal, outcomes []store.Renewed) error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	if ctx.Err() != nil {
		return ctx.Err() // the caller renews them again
	}
	if err := s.findStuck(grants, s.stuck.has, s.stuck.failure()); err != nil {
		return err
	}
	err := s.renewUnstuck(grants, outcomes)
	if !isLocked(err) {
		return err
	}
	if err := s.findStuck(grants, func(string) bool { return true }, err); err != nil {
		return err
	}
	return s.renewUnstuck(grants, outcomes)
}

// renewAll extends grants in one statement if they are plain, and otherwise in a transaction. Its
// error is one of the store contract, or comes from the connection, or says that a row is locked.
func (s *Store) renewAll(grants []store.Renewal, outcomes []store.Renewed) error {
	if statement, alike := s.plainRenewal(grants); alike {
		var n int64
		err := s.gives.use(context.Background(), func(ctx context.Context, c *conn) (err error) {
			n, err = c.exec(ctx, statement)
			return err
		})
		switch {
		case err != nil && !isNumber(err, errDeadlock):
			return err
		case err == nil && n == int64(len(grants)):
			for i := range outcomes {
				outcomes[i] = store.Renewed{Status: store.Extended, TTL: grants[i].TTL}
			}
			return nil
		}
	}
	var calls []*call
	for i := range grants {
		calls = append(calls, &call{name: grants[i].Name, do: func(e *entry) (err error) {
			outcomes[i], err = e.call.Renew(&grants[i])
			return err
		}})
	}
	s.gives.send(context.Background(), calls)
	for i, c := range calls {
		if isOutcome(c.err) {
			return c.err
		}
		if isLocked(c.err) {
			s.stuck.add(c.name, c.err)
		}
		if c.err != nil {
			outcomes[i] = store.Renewed{Err: s.explain(s.life, c.err)}
		}
	}
	return nil
}

// plainRenewal returns a statement that extends grants with equal parameters, each the only grant
// of its name. If the statement changes fewer rows, some of the grants are gone or not plain.
func (s *Store) plainRenewal(grants []store.Renewal) (statement string, alike bool) {
	names, ids := make([]string, len(grants)), make([]string, len(grants))
	for i := range grants {
		g := &grants[i]
		if g.Tokens > 0 || g.Floor > 0 || g.TTL != grants[0].TTL || g.Mode != grants[0].Mode {
			return "", false
		}
		names[i], ids[i] = g.Name, idLiteral(g.ID)
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(grants) {
		return "", false
	}
	return fmt.Sprintf(s.sql.renew, grants[0].TTL.Microseconds(), literals(names), strings.Join(ids, ", "), grants[0].Mode), true
}
