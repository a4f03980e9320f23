package pgstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/stores/batch"
	"github.com/holdfast-lock/holdfast/internal/stores/expiring"
	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// heartbeat is how long a waiter that stopped asking keeps its place and delays the next one.
	heartbeat = 5 * time.Second

	// minTTL is longer than a commit takes on a busy server.
	minTTL = 100 * time.Millisecond

	// poll is how often the next waiter of a name asks if notifications do not arrive. The others
	// ask less often the more waiters are in front of them: a waiter that became the next one does
	// not know it before it asks, and until then nobody else is granted the name.
	poll = 50 * time.Millisecond

	// flying is how many statements are in flight before calls share statements.
	flying = 2

	// pause is how long calls wait for a reply to statements in flight before they are sent on another
	// connection. It is more than a commit takes, and less than the round trip to a distant server.
	pause = 5 * time.Millisecond

	// ownConns is the default size of the pool of a store.
	ownConns = 4

	// pingTimeout bounds how long the pool tests a connection that was idle. If several have died, a call does
	// not end at the first. But a test that takes longer than half of it leaves too little time for the call.
	pingTimeout = callTimeout / 2

	// closeTimeout bounds how long Close waits for connections: a dialer of the application may hang.
	closeTimeout = 2 * time.Second

	// setUpTimeout bounds the first contact of New with the server.
	setUpTimeout = 10 * time.Second
)

var _ store.Store = (*Store)(nil)

// A Store keeps locks in a PostgreSQL database. Make one with [New], or open it by its URL: see
// the package documentation. It is safe for concurrent use.
type Store struct {
	pool   *pgxpool.Pool
	schema string // quoted
	sql    callStatements

	unprepared atomic.Bool // see execMode

	heartbeat time.Duration
	batch     batch.Batcher[call]
	renewals  batch.Batcher[call] // apart, so that a renewal does not wait for a name that another call waits for

	// stuck has the names whose rows another session had locked for longer than a statement waits. Their calls
	// are sent apart, one statement at a time, so that they do not take the connections of all others.
	stuck      expiring.Set[string]
	stuckCalls batch.Batcher[call]
	suspicious atomic.Bool // the last statement that renewed several grants failed

	listener listener
	sweeps   sweeps

	life handle.Life

	unanswered expiring.Set[store.ID] // identities of Acquire requests that may still arrive
}

// An Option sets up a store that New makes.
type Option func(*config)

type config struct {
	schema   string
	noCreate bool
	log      *slog.Logger
}

// InSchema sets the schema of the tables and functions. Only programs that use the same schema of
// the same database exclude each other. The default is [DefaultSchema].
func InSchema(schema string) Option { return func(c *config) { c.schema = schema } }

// NoCreate makes New fail if the tables and functions do not exist, instead of creating them.
func NoCreate() Option { return func(c *config) { c.noCreate = true } }

// Logger sets where the store reports that waiters poll. The default is slog.Default.
func Logger(log *slog.Logger) Option { return func(c *config) { c.log = log } }

// New returns a store with the configuration of an existing pool. It opens connections of its own, at
// most four and not more than the pool has, so that an application that uses up its pool loses no lease,
// and one further connection while a call waits.
//
// New waits up to ten seconds for the database. It creates the tables and functions in the schema
// "holdfast" if they do not exist: see [InSchema] and [NoCreate]. It returns an error that matches
// holdfast.ErrInvalid for a malformed schema name.
func New(pool *pgxpool.Pool, opts ...Option) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("postgres store: %w: the pool is nil", store.ErrInvalid)
	}
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), setUpTimeout)
	defer cancel()
	own := pool.Config()
	own.MaxConns, own.MinConns, own.MinIdleConns = min(own.MaxConns, ownConns), 0, 0
	own.PingTimeout = cmp.Or(own.PingTimeout, pingTimeout)
	own.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {} // those that the application's AfterConnect listens for
	// A handler that waits for the server to cancel the statement would wait for long if the server hangs.
	own.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	return newStore(ctx, own, c)
}

func newStore(ctx context.Context, own *pgxpool.Config, c config) (s *Store, err error) {
	quoted, err := quoteSchema(c.schema)
	if err != nil {
		return nil, fmt.Errorf("postgres store: %w", err)
	}
	bound(own)
	pool, err := pgxpool.NewWithConfig(ctx, own)
	if err != nil {
		return nil, explain(err)
	}
	defer func() {
		if err != nil {
			go pool.Close() // it waits for a server that hangs
		}
	}()
	pooler, err := behindPooler(ctx, pool)
	if err != nil {
		return nil, err
	}
	err = checkSchema(ctx, pool, c.schema)
	if errors.Is(err, errNoSchema) && !c.noCreate {
		err = Migrate(ctx, pool, c.schema)
	}
	if err != nil {
		return nil, err
	}
	s = &Store{pool: pool, schema: quoted, sql: callStatementsOf(quoted, version), heartbeat: heartbeat}
	s.life.Begin("postgres store")
	send := func(calls []*call) (refused bool) { return s.send(calls, false) }
	s.batch = batch.Batcher[call]{MaxInFlight: min(flying, int(own.MaxConns)), MaxBatch: maxCalls, Timeout: callTimeout, Send: send}
	if own.MaxConns > flying {
		s.batch.MaxWait = pause
	}
	s.renewals = batch.Batcher[call]{
		MaxInFlight: s.batch.MaxInFlight, MaxBatch: maxCalls, MaxWait: s.batch.MaxWait, Timeout: callTimeout, Send: send,
	}
	s.stuckCalls = batch.Batcher[call]{MaxInFlight: 1, MaxBatch: maxCalls, Timeout: callTimeout, Send: func(calls []*call) (refused bool) {
		return s.send(calls, several(calls)) // it must not keep rows locked while it waits for others
	}}
	s.listener = listener{
		connect: s.connectApart, channel: "holdfast_" + strings.ToLower(rand.Text()),
		log: cmp.Or(c.log, slog.Default()), ctx: s.life.Closing, waits: wake.Table[struct{}]{Keep: s.heartbeat},
	}
	conf := own.ConnConfig
	s.unprepared.Store(pooler || conf.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement || conf.StatementCacheCapacity == 0)
	return s, nil
}

// behindPooler reports whether there is a connection pooler between the pool and the server.
func behindPooler(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return false, explain(err)
	}
	defer conn.Release()
	return poolerAt(ctx, conn.Conn())
}

// poolerAt compares process IDs, because a pooler reports IDs of its own to its clients.
func poolerAt(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	return err == nil && pid != conn.PgConn().PID(), explain(err)
}

// connectApart opens a connection outside of the pool, with the configuration of the pool.
func (s *Store) connectApart(ctx context.Context) (*pgx.Conn, error) {
	config := s.pool.Config()
	config.ConnConfig.OnNotification = nil // the listener waits for notifications itself
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config.ConnConfig)
}

// Capabilities returns what this store supports: everything except surviving the loss of a
// server together with its data, which depends on how the database is replicated.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: "postgres",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep |
			store.FeatureList | store.FeatureProcesses | store.FeatureHosts | store.FeatureDurable,
		MinTTL:    minTTL,
		Heartbeat: s.heartbeat,
		Timeout:   callTimeout,
	}
}

// Close ends the store: see [store.Store]. It also ends calls in flight. It closes the connections of the store,
// and not the pool that was passed to New.
func (s *Store) Close() error {
	if !s.life.Shut() {
		return nil
	}
	defer s.life.End()
	s.life.Wait()
	s.batch.Close()
	s.renewals.Close()
	s.stuckCalls.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.listener.wg.Wait() // a dialer of the application may not look at its context
		s.pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
	return nil
}

// Acquire makes one attempt to take a name: see [store.Store], and [store.SameClaim] for a repeated request.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if req.Floor >= store.MaxToken {
		return store.Answer{}, store.NoTokens(req.Floor)
	}
	req.Tokens = rules.Block(req.Tokens)
	c := &call{op: opAcquire, req: req}
	if req.Queue {
		s.listener.expect(req.ID)
	}
	err := s.do(ctx, c)
	var answer store.Answer
	if err == nil {
		answer, err = c.answer(s.listener.pushed())
	}
	if !req.Queue || err == nil && answer.Granted() || errors.Is(err, store.ErrInvalid) {
		s.listener.waits.Forget(keyOf(req.ID))
	}
	return answer, err
}

// answer translates the reply to an Acquire.
func (c *call) answer(pushed bool) (store.Answer, error) {
	r, req := &c.reply, &c.req
	switch r.Status {
	case isDone:
		return store.Answer{Token: r.Token, Tokens: r.Tokens, TTL: req.TTL, Waiters: r.Waiters}, nil
	case isOtherClaim:
		return store.Answer{}, cmp.Or(store.SameClaim(req, store.Mode(r.Mode), r.Weight, r.Limit), c.unexpected())
	case isOtherUse:
		return store.Answer{}, cmp.Or(store.Mixes(req.Name, req.Mode, req.Limit, store.Mode(r.Mode), r.Limit), c.unexpected())
	case isOutOfTokens:
		return store.Answer{}, store.NoTokens(req.Floor)
	case isEnded:
		return store.Answer{}, fmt.Errorf("%w: %q: request was already cancelled", store.ErrInvalid, req.Name)
	case isRefused:
		refusal := &store.Refusal{Place: r.Place, Waiters: r.Waiters, Again: time.Duration(r.Again) * time.Microsecond}
		if r.Place > 0 && !pushed {
			refusal.Again = min(refusal.Again, time.Duration(r.Place)*poll)
		}
		refusal.Holders = holdersOf(r.Holders)
		return store.Answer{Refusal: refusal}, nil
	}
	return store.Answer{}, c.unexpected()
}

func (c *call) unexpected() error {
	return fmt.Errorf("postgres store: %q: unexpected outcome %d of call %d", c.req.Name, c.reply.Status, c.op)
}

// outcome makes a call whose only result is an error.
func (s *Store) outcome(ctx context.Context, c *call) error {
	if err := s.do(ctx, c); err != nil {
		return err
	}
	switch c.reply.Status {
	case isDone:
		return nil
	case isNotHeld:
		return store.ErrNotHeld
	case isNotExclusive:
		return cmp.Or(store.CheckDone(store.Keep{State: store.Done}, store.Mode(c.reply.Mode)), c.unexpected())
	}
	return c.unexpected()
}

// Release ends a grant, or keeps its name closed for a time: see [store.Store].
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	c := &call{op: opRelease, req: store.Request{Name: name, ID: id}}
	if keep.State != store.Held { // the functions take the state and its time for mode and TTL
		c.op, c.req.Mode, c.req.TTL = opKeep, store.Mode(keep.State), keep.For
	}
	return s.outcome(ctx, c)
}

// Leave removes an identity from the queue and releases its grant: see [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	defer s.listener.waits.Forget(keyOf(id))
	return s.outcome(ctx, &call{op: opLeave, req: store.Request{Name: name, ID: id}})
}

// Break ends a grant or a kept record by force: see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.outcome(ctx, &call{op: opBreak, req: store.Request{Name: name, ID: id}})
}

// Renew extends grants: see [store.Store]. The error is [store.ErrInvalid] also for a floor with no token above it.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	calls := make([]*call, len(grants))
	for i, g := range grants {
		calls[i] = &call{op: opRenew, req: store.Request{
			Name: g.Name, ID: g.ID, Mode: g.Mode, TTL: g.TTL, Tokens: min(g.Tokens, rules.MaxBlock), Floor: g.Floor,
		}}
		if g.Floor >= store.MaxToken {
			calls[i].err = store.NoTokens(g.Floor)
		}
	}
	valid := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.err != nil })
	if len(calls) == 1 && len(valid) == 1 {
		// A client with many contended names renews each of them before it hands it over. These
		// renewals share statements. Otherwise the renewals of other leases would be late.
		switch err := s.do(ctx, calls[0]); {
		case err == nil:
		case errors.Is(err, store.ErrClosed):
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default:
			return []store.Renewed{{Err: err}}, nil
		}
	} else if err := s.renewMany(ctx, valid); err != nil {
		return nil, err
	}
	outcomes := make([]store.Renewed, len(grants))
	for i, c := range calls {
		r := &c.reply
		switch {
		case c.err != nil:
			outcomes[i].Err = c.err
		case r.Status == isDone:
			outcomes[i] = store.Renewed{Status: store.Extended, TTL: grants[i].TTL, Token: r.Token, Tokens: r.Tokens}
		case r.Status == isNotHeld:
			outcomes[i].Status = store.Gone
		case r.Status == isOtherMode:
			outcomes[i].Err = cmp.Or(store.CheckRenewal(&grants[i], store.Mode(r.Mode)), c.unexpected())
		default:
			outcomes[i].Err = c.unexpected()
		}
	}
	return outcomes, nil
}

// renewMany makes several renewals, in statements of their own, and sets the error of each.
func (s *Store) renewMany(ctx context.Context, calls []*call) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	callCtx, cancel := s.limit(ctx)
	defer cancel()
	var free, stuck []*call
	for _, c := range calls {
		if s.stuck.Has(c.req.Name) {
			stuck = append(stuck, c)
		} else {
			free = append(free, c)
		}
	}
	for part := range slices.Chunk(free, maxCalls) {
		s.perform(ctx, callCtx, part, s.suspicious.Load())
		// A renewal may have no time to find out which row is locked. The next one does not wait for any.
		s.suspicious.Store(part[0].err != nil && part[0].err != errLocked)
	}
	for part := range slices.Chunk(stuck, maxCalls) {
		s.perform(ctx, callCtx, part, true)
	}
	switch {
	case s.life.Closing.Err() != nil:
		return s.life.ErrClosed
	case ctx.Err() != nil && !slices.ContainsFunc(calls, func(c *call) bool { return c.err == nil }):
		return ctx.Err()
	}
	return nil
}

// A row describes a holder or a waiter in the JSON of the functions.
type row struct {
	ID     store.ID
	Mode   store.Mode
	Weight int
	Lim    int
	Token  int64
	State  store.State
	Age    int64 // µs
	Rest   int64 // µs
	Owner  string
	Meta   string
}

func holdersOf(rows []row) (holders []store.Holder) {
	for _, r := range rows {
		holders = append(holders, store.Holder{
			ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight, Token: r.Token, State: r.State,
			Age: time.Duration(r.Age) * time.Microsecond, Left: time.Duration(r.Rest) * time.Microsecond,
		})
	}
	return holders
}
