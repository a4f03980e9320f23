package pgstore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/store"
)

// callFunction is the function that makes all calls but List.
var callFunction = fmt.Sprintf("call_v%d", version)

// The calls that callFunction knows.
const (
	opAcquire = iota + 1
	opRelease
	opLeave
	opKeep
	opRenew
	opBreak
)

// The outcomes that it returns.
const (
	isDone         = iota
	isRefused      // Acquire
	isNotHeld      // Release, Keep, Renew, Break
	isOtherClaim   // Acquire: another mode, weight or limit under the same identity
	isOtherUse     // Acquire: holders or waiters with another mode or limit
	isOutOfTokens  // Acquire
	isNotExclusive // Keep
	isOtherMode    // Renew
)

const (
	// maxCalls is how many calls share a statement. Each of them takes an advisory lock, and
	// the server has room for max_locks_per_transaction × max_connections, 6,400 by default.
	maxCalls = 64

	// callTimeout bounds a statement. Its callers may give up earlier.
	callTimeout = 3 * time.Second
)

// A call is one call of the store, and its outcome.
type call struct {
	op    int
	req   store.Request // Name and ID; all of it for opAcquire; Mode, TTL, Tokens and Floor for opRenew
	keep  store.Keep    // opKeep
	reply reply
	err   error
	done  chan struct{} // closed when there is an outcome
}

// A reply is a row that callFunction returns.
type reply struct {
	Call    int
	Status  int
	Token   int64
	Tokens  int
	Waiters int
	Place   int
	Again   int64 // µs
	Mode    int
	Weight  int
	Limit   int
	Holders []byte // JSON
	Fresh   bool
}

// do makes a call together with others. It returns when ctx ends, but the statement goes on: pgx
// closes the connection of a statement whose context ends, and a new one takes milliseconds.
func (s *Store) do(ctx context.Context, c *call) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	c.done = make(chan struct{})
	earlier := s.lateCall(c.req.ID)
	sent := true
	go func() {
		defer s.wg.Done()
		defer close(c.done)
		if earlier != nil {
			select {
			case <-earlier:
			case <-s.ctx.Done():
			}
		}
		sent = s.batch.Do(s.ctx, c, func() { s.send([]*call{c}) }) == nil
	}()
	select {
	case <-c.done:
		if !sent {
			return errClosed
		}
		return c.err
	case <-ctx.Done():
		s.noteLate(c)
		return ctx.Err()
	case <-s.ctx.Done():
		return errClosed
	}
}

// enter begins a call. If it returns nil, the caller must call s.wg.Done at its end.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.wg.Add(1)
	return nil
}

// noteLate notes a call that is in flight although its caller gave up. The next call of its
// identity waits for it. Otherwise a Leave could be done before the Acquire that it undoes.
func (s *Store) noteLate(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, done := range s.late { // there are few
		select {
		case <-done:
			delete(s.late, id)
		default:
		}
	}
	if s.late == nil {
		s.late = make(map[store.ID]chan struct{})
	}
	s.late[c.req.ID] = c.done
}

// lateCall returns a channel that is closed when the late call of an identity has returned; nil
// if there is none.
func (s *Store) lateCall(id store.ID) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late[id]
}

// send makes calls in one statement and one transaction.
func (s *Store) send(calls []*call) {
	ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
	defer cancel()
	err := s.query(ctx, calls)
	for _, c := range calls {
		if err != nil {
			c.err = explain(err)
		} else if c.reply.Call == 0 {
			c.err = errors.New("postgres store: no outcome of a call")
		}
	}
}

func (s *Store) query(ctx context.Context, calls []*call) error {
	if err := s.takeConn(ctx); err != nil {
		return err
	}
	defer s.putConn()
	rows, err := s.pool.Query(ctx, s.callSQL, s.arguments(calls)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	fresh := 0
	for rows.Next() {
		var r reply
		if err := rows.Scan(&r.Call, &r.Status, &r.Token, &r.Tokens, &r.Waiters, &r.Place, &r.Again,
			&r.Mode, &r.Weight, &r.Limit, &r.Holders, &r.Fresh); err != nil {
			return err
		}
		if r.Fresh {
			fresh++
		}
		switch {
		case r.Call == 0:
			var next string
			if err := json.Unmarshal(r.Holders, &next); err != nil {
				return err
			}
			s.sweeps.end(next)
		case r.Call > 0 && r.Call <= len(calls):
			calls[r.Call-1].reply = r
		}
	}
	if err := rows.Err(); err != nil {
		for _, c := range calls {
			c.reply = reply{}
		}
		return err
	}
	s.sweeps.add(fresh)
	return nil
}

// takeConn limits how many connections of the pool are in use. The pool belongs to the
// application.
func (s *Store) takeConn(ctx context.Context) error {
	select {
	case s.conns <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.conns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) putConn() { <-s.conns }

// arguments returns the arguments of callFunction: an array for each column. The statement is
// neither prepared nor described first: that would need a second round trip, or a prepared
// statement, which poolers do not keep. The server keeps the plans of the statements inside the
// function.
func (s *Store) arguments(calls []*call) []any {
	n := len(calls)
	ops, names, ids := make([]int64, n), make([]string, n), make([]string, n)
	modes, weights, limits := make([]int64, n), make([]int64, n), make([]int64, n)
	ttls, tokens, floors := make([]int64, n), make([]int64, n), make([]int64, n)
	queues, owners, metas := make([]bool, n), make([]string, n), make([]string, n)
	for i, c := range calls {
		r := &c.req
		ops[i], names[i], ids[i] = int64(c.op), r.Name, hex.EncodeToString(r.ID[:])
		modes[i], weights[i], limits[i] = int64(r.Mode), int64(r.Weight), int64(r.Limit)
		ttls[i], tokens[i], floors[i] = microseconds(r.TTL), int64(r.Tokens), r.Floor
		queues[i], owners[i], metas[i] = r.Queue, r.Owner, r.Meta
		if c.op == opKeep {
			modes[i], ttls[i] = int64(c.keep.State), microseconds(c.keep.For)
		}
	}
	after, limit := s.sweeps.begin()
	return []any{
		pgx.QueryExecModeExec, microseconds(s.heartbeat), s.listener.channelForWaiters(), after, limit,
		ops, names, ids, modes, weights, limits, ttls, tokens, floors, queues, owners, metas,
	}
}

// microseconds rounds up, so that the server never keeps a time that is shorter than asked for.
func microseconds(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// callStatement returns the statement of a call for a schema.
func callStatement(quotedSchema string) string {
	return "SELECT call, coalesce(status, 0), coalesce(token, 0), coalesce(tokens, 0), coalesce(waiters, 0), coalesce(place, 0)," +
		" coalesce(again, 0), coalesce(mode, 0), coalesce(weight, 0), coalesce(lim, 0), holders, coalesce(fresh, false) FROM " +
		quotedSchema + "." + callFunction + "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
}
