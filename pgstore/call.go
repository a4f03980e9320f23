package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/batch"
	"github.com/holdfast-lock/holdfast/internal/stores/expiring"
	"github.com/holdfast-lock/holdfast/store"
)

// The kinds of calls, as schema.sql numbers them.
const (
	opAcquire = iota + 1
	opRelease
	opLeave
	opKeep
	opRenew
	opBreak
)

// The outcomes that they return.
const (
	isDone         = iota
	isRefused      // Acquire
	isNotHeld      // Release, Keep, Renew, Break
	isOtherClaim   // Acquire: another mode, weight or limit under the same identity
	isOtherUse     // Acquire: holders or waiters with another mode or limit
	isOutOfTokens  // Acquire
	isNotExclusive // Keep
	isOtherMode    // Renew
	isEnded        // Acquire: that identity has released the name or left
	isLocked       // another session has locked the row of the name
)

// callTimeout bounds a call.
const callTimeout = 3 * time.Second

// stuckFor is how long a name counts as stuck after its row was last found locked.
const stuckFor = time.Minute

// lockedPause is how long a call waits before it tries a locked row again, which may fail at once.
const lockedPause = 20 * time.Millisecond

// maxCalls is how many calls share a statement.
const maxCalls = 64

// A call is one call of the store, and its outcome.
type call struct {
	op    int
	req   store.Request // Name and ID; all of it for opAcquire; Mode and TTL for opKeep; these, Tokens and Floor for opRenew
	reply reply
	err   error

	answered bool         // there is a reply
	state    atomic.Int32 // queued, sent or abandoned; for a call in a batch
}

const (
	queued = iota
	sent
	abandoned // its caller gave up before it was sent
)

// A reply is the outcome of a call as the functions return it.
type reply struct {
	Status  int
	Token   int64
	Tokens  int
	Waiters int
	Place   int
	Again   int64 // µs
	Mode    int
	Weight  int
	Limit   int `json:"lim"`
	Holders []row
	Fresh   bool // a row was added
}

// read parses the outcome of a call: JSON, or the token of a grant, or an empty text for success.
func (c *call) read(text []byte) (err error) {
	c.answered, c.reply = true, reply{}
	switch {
	case len(text) == 0:
	case text[0] == '{':
		err = json.Unmarshal(text, &c.reply)
	default:
		c.reply.Tokens = c.req.Tokens
		c.reply.Token, err = strconv.ParseInt(string(text), 10, 64)
	}
	return err
}

// do makes a call, in a statement of its own or in a batch.
func (s *Store) do(ctx context.Context, c *call) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	b := &s.batch
	switch {
	case s.stuck.Has(c.req.Name):
		b = &s.stuckCalls
	case c.op == opRenew:
		b = &s.renewals
	}
	begin := time.Now()
	err := s.doIn(ctx, b, c)
	// The row may be locked for a moment only. A statement waits for less than that, the lock_timeout of the
	// functions, and hardly at all if it has other names, because it keeps their rows locked meanwhile.
	for (err == errLocked || isCode(err, lockTimeout)) && time.Since(begin) < callTimeout/2 {
		select {
		case <-time.After(lockedPause):
		case <-ctx.Done():
		case <-s.life.Closing.Done():
		}
		rest, cancel := context.WithTimeout(ctx, callTimeout-time.Since(begin))
		again := &call{op: c.op, req: c.req}
		err = bounded.NoReply(ctx, rest, s.doIn(rest, &s.stuckCalls, again))
		cancel()
		if errors.Is(err, bounded.ErrNoReply) {
			err = fmt.Errorf("%w: %s", err, advice[lockTimeout])
		}
		if c.err = err; err == nil { // otherwise the statement may go on, and write the reply
			c.reply = again.reply
		}
	}
	return err
}

// doIn makes a call, alone or in a batch of b.
func (s *Store) doIn(ctx context.Context, b *batch.Batcher[call], c *call) error {
	_, err := b.Do(ctx, c, func() {
		callCtx, cancel := s.limit(ctx)
		defer cancel()
		s.perform(ctx, callCtx, []*call{c}, false)
	})
	switch {
	case err != nil:
		if !c.state.CompareAndSwap(queued, abandoned) && c.op == opAcquire {
			s.unanswered.Add(c.req.ID, expiring.Late)
		}
		if ctx.Err() == nil {
			err = bounded.ErrNoReply
		}
		return err
	case c.err != nil && s.life.Closing.Err() != nil:
		return s.life.ErrClosed
	}
	return c.err
}

// enter begins a call. If it returns nil, the caller must call s.life.Exit at its end.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.life.EnterCall(ctx)
}

// limit returns a context that ends with ctx, with Close, or when callTimeout is over.
func (s *Store) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	stop := context.AfterFunc(s.life.Closing, cancel)
	return callCtx, func() {
		stop()
		cancel()
	}
}

// send makes the calls of a batch, except those whose callers gave up. Their contexts do not end it.
func (s *Store) send(calls []*call, skip bool) (refused bool) {
	calls = slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return !c.state.CompareAndSwap(queued, sent) })
	if len(calls) == 0 {
		return false
	}
	ctx := context.Background()
	callCtx, cancel := s.limit(ctx)
	defer cancel()
	s.perform(ctx, callCtx, calls, skip)
	return false
}

// perform makes calls and sets their errors. CallCtx is the context of the calls, and ctx that of
// their caller. If another session has locked a row for long, several calls are made again, on one name
// once as they are, and then without those that would wait for it. If skip is true, that is done at once.
func (s *Store) perform(ctx, callCtx context.Context, calls []*call, skip bool) {
	err := s.query(callCtx, calls, skip)
	if isCode(err, lockTimeout) && !skip && len(calls) > 1 {
		if !several(calls) {
			err = s.query(callCtx, calls, false)
		}
		if isCode(err, lockTimeout) {
			err = s.query(callCtx, calls, true)
		}
	}
	if err != nil {
		if isCode(err, "26000", "42P05") { // prepared statements are lost or mixed up, so there is a pooler now
			s.unprepared.Store(true)
		}
		err = bounded.NoReply(ctx, callCtx, explain(err))
	}
	for _, c := range calls {
		switch {
		case err != nil:
			c.err = err
			if len(calls) == 1 && isCode(err, lockTimeout) {
				s.stuck.Add(c.req.Name, stuckFor)
			}
		case !c.answered:
			c.err = errors.New("postgres store: the server returned no outcome for a call")
		case c.reply.Status == isLocked:
			c.err = errLocked
			s.stuck.Add(c.req.Name, stuckFor)
		default:
			s.stuck.Remove(c.req.Name)
		}
	}
}

// several reports whether calls are for more than one name.
func several(calls []*call) bool {
	return slices.ContainsFunc(calls, func(c *call) bool { return c.req.Name != calls[0].req.Name })
}

// query makes calls in one statement, but if skip is true, none that would wait for rows of other sessions.
func (s *Store) query(ctx context.Context, calls []*call, skip bool) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err = s.queryOn(ctx, conn, calls, skip); err == nil {
		// A statement that was cancelled while it waited for a synchronous standby is reported as a
		// success, and a failover loses the commit.
		if err = ctx.Err(); err == nil {
			return nil
		}
	}
	var failure *pgconn.PgError
	if errors.As(err, &failure) && failure.SeverityUnlocalized == "ERROR" || pgconn.SafeToRetry(err) {
		return err
	}
	for _, c := range calls {
		if c.op == opAcquire {
			s.unanswered.Add(c.req.ID, expiring.Late)
		}
	}
	return err
}

func (s *Store) queryOn(ctx context.Context, conn *pgxpool.Conn, calls []*call, skip bool) error {
	if len(calls) > 1 { // transactions that lock names in the same order do not deadlock
		calls = slices.Clone(calls)
		slices.SortStableFunc(calls, func(a, b *call) int { return strings.Compare(a.req.Name, b.req.Name) })
	}
	sql, arguments := s.statement(calls, skip)
	rows, _ := conn.Query(ctx, sql, arguments...) // the error is in rows, too
	defer rows.Close()
	next := 0
	for ; rows.Next(); next++ {
		text := rows.RawValues()[0]
		if next == len(calls) {
			s.sweeps.end(string(text))
			continue
		}
		if err := calls[next].read(text); err != nil {
			return err
		}
		if calls[next].reply.Fresh {
			s.sweeps.add()
		}
	}
	return rows.Err()
}

// statement returns the statement for some calls, and its arguments.
func (s *Store) statement(calls []*call, skip bool) (sql string, arguments []any) {
	after, limit := s.sweeps.begin()
	if len(calls) == 1 && limit == 0 && !skip {
		return s.statementForOne(calls[0])
	}
	n := len(calls)
	ops, names, ids := make([]int64, n), make([]string, n), make([]pgtype.UUID, n)
	modes, weights, limits := make([]int64, n), make([]int64, n), make([]int64, n)
	ttls, tokens, floors := make([]int64, n), make([]int64, n), make([]int64, n)
	queues, owners, metas := make([]bool, n), make([]string, n), make([]string, n)
	for i, c := range calls {
		r := &c.req
		ops[i], names[i], ids[i] = int64(c.op), r.Name, uuid(r.ID)
		modes[i], ttls[i] = int64(r.Mode), microseconds(r.TTL)
		weights[i], limits[i] = int64(r.Weight), int64(r.Limit)
		tokens[i], floors[i] = int64(r.Tokens), r.Floor
		queues[i], owners[i], metas[i] = s.queueFlag(c), r.Owner, r.Meta
	}
	return s.sql.several, []any{
		s.execMode(), inText, microseconds(s.heartbeat), s.listener.channelForWaiters(), skip, after, limit,
		ops, names, ids, modes, weights, limits, ttls, tokens, floors, queues, owners, metas,
	}
}

// statementForOne returns the statement for one call. Each argument costs time, so frequent calls have fewer.
func (s *Store) statementForOne(c *call) (sql string, arguments []any) {
	r, queue := &c.req, s.queueFlag(c)
	mode, ttl := int64(r.Mode), microseconds(r.TTL)
	switch {
	case c.op == opAcquire && r.Mode == store.Exclusive:
		return s.sql.acquire, []any{
			s.execMode(), inText, microseconds(s.heartbeat), s.listener.channelForWaiters(),
			r.Name, uuid(r.ID), ttl, r.Tokens, r.Floor, queue, r.Owner, r.Meta,
		}
	case c.op == opRelease && !queue:
		return s.sql.release, []any{s.execMode(), inText, r.Name, uuid(r.ID)}
	}
	return s.sql.one, []any{
		s.execMode(), inText, microseconds(s.heartbeat), s.listener.channelForWaiters(),
		c.op, r.Name, uuid(r.ID), mode, r.Weight, r.Limit, ttl, r.Tokens, r.Floor, queue, r.Owner, r.Meta,
	}
}

// inText requests all columns as text.
var inText = pgx.QueryResultFormats{pgx.TextFormatCode}

func uuid(id store.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// execMode returns how to send statements. Prepared statements cost the server half as much. Poolers do not
// keep them, and there statements are not described first either, which would need a second round trip.
func (s *Store) execMode() pgx.QueryExecMode {
	if s.unprepared.Load() {
		return pgx.QueryExecModeExec
	}
	return pgx.QueryExecModeCacheStatement
}

// queueFlag says whether an Acquire joins the queue, and for a call that ends a grant whether an Acquire of
// that identity may still arrive. Only its holder knows that, so it is true for every Break.
func (s *Store) queueFlag(c *call) bool {
	switch c.op {
	case opAcquire:
		return c.req.Queue
	case opRenew:
		return false
	case opBreak:
		return true
	}
	return s.unanswered.Has(c.req.ID)
}

// microseconds rounds up, so that the server never keeps a time that is shorter than requested.
func microseconds(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// callStatements are the statements that make calls. Each calls one function of the schema.
type callStatements struct {
	acquire string // one exclusive Acquire
	release string // one Release of an identity that has no request in flight
	one     string // one call of any kind
	several string // several calls of any kind
	list    string
}

func callStatementsOf(quotedSchema string, version int) callStatements {
	call := func(function string, n int) string { // with n arguments
		sql := fmt.Sprintf("%s.%s_v%d($1", quotedSchema, function, version)
		for i := 2; i <= n; i++ {
			sql += fmt.Sprintf(", $%d", i)
		}
		return sql + ")"
	}
	return callStatements{
		acquire: "SELECT " + call("acquire", 10),
		release: "SELECT " + call("release", 2),
		one:     "SELECT " + call("one", 14),
		several: "SELECT " + call("call", 17),
		list:    "SELECT name, holders, waiters FROM " + call("list", 4),
	}
}
