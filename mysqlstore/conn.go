package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/stores/batch"
)

const (
	// callTimeout bounds a call. Its caller may give up earlier.
	callTimeout = 3 * time.Second

	// grace is how long a call continues after its caller has given up, which returns later by this time. It is
	// longer than a round trip to most servers. If a statement has not ended by then, the connection is closed,
	// and the request may arrive late.
	grace = 100 * time.Millisecond

	// rowPatience is how many seconds a statement waits for a locked row. Transactions take milliseconds.
	rowPatience = 1

	// stuckFor is how long calls do not wait for a row after one has waited for rowPatience in vain. A client
	// that never waits for a row that many use hardly gets its turn. This time is shorter than what is
	// left of most leases when their first renewal fails.
	stuckFor = 5 * time.Second

	// clientIdle is how long a connection stays open without use. Renewals of the default TTL keep it open.
	clientIdle = 15 * time.Second

	// idlePatience bounds the first statement on an idle connection of the pool, on which nothing may arrive
	// after a failover. The statements that set up a session take less, or all of them more than a call.
	idlePatience = 500 * time.Millisecond

	// serverIdle is when the server closes an idle connection, and unlocks the rows of a client that hangs.
	serverIdle = 20 * time.Second

	// deadlocks is how often a transaction is repeated at once after a deadlock. They are rare: see transaction.
	deadlocks = 10
)

// Errors of the server.
const (
	errWrongPassword    = 1045
	errNoSuchTable      = 1146
	errUserConns        = 1203 // max_user_connections of the server
	errRowLocked        = 1205
	errDeadlock         = 1213
	errUserLimit        = 1226 // MAX_USER_CONNECTIONS of the user
	errColumnOutOfRange = 1264
	errManyStatements   = 1461 // max_prepared_stmt_count
	errOutOfRange       = 1690 // a name is not free: see statements.acquire
	errTimeLimit        = 1969 // the time limit of MariaDB for one statement; it may be shorter than rowPatience
)

// A lane is a connection whose session is set up for it, and the calls that take turns to use it.
type lane struct {
	s    *Store
	turn chan struct{} // holds one element while the lane is in use
	conn *conn         // nil if there is none
	idle *time.Timer   // closes the connection

	// One call at a time is in flight. Calls that arrive meanwhile share the next transaction.
	calls batch.Batcher[call]
}

// A conn is a connection that is set up for a lane.
type conn struct {
	*sql.Conn
	acquire, release bySize
}

// bySize holds prepared statements for 1, 2, 4, 8, … names. A batch repeats its last name to fill
// one of them, because a statement for each number of names would need more memory on the server.
type bySize [8]*sql.Stmt // up to maxBatch

// prepared returns the smallest statement that has room for n names, and its size.
func (p *bySize) prepared(ctx context.Context, c *conn, n int, text func(size int) string) (stmt *sql.Stmt, size int, err error) {
	i := bits.Len(uint(n - 1))
	if p[i] == nil {
		p[i], err = c.PrepareContext(ctx, text(1<<i))
	}
	return p[i], 1 << i, err
}

func (s *Store) newLane() *lane {
	l := &lane{s: s, turn: make(chan struct{}, 1)}
	l.calls = batch.Batcher[call]{
		MaxInFlight: 1, MaxBatch: maxBatch, Timeout: callTimeout, Name: func(c *call) string { return c.name },
		Send: func(calls []*call) (refused bool) { l.send(context.Background(), calls); return false },
	}
	l.idle = time.AfterFunc(clientIdle, l.disconnectIdle)
	return l
}

// use calls f with the connection of the lane. It returns at most callTimeout after it was called,
// and at most grace after the end of ctx. If f returns an error that did not come from the server,
// the state of the connection is unknown, and it is closed. It is also closed if the server has
// become read-only, because a new connection may reach the new primary.
func (l *lane) use(ctx context.Context, f func(ctx context.Context, c *conn) error) error {
	if err := l.s.life.Usable(ctx); err != nil {
		return l.s.noReply()
	}
	call, cancel := context.WithTimeout(l.s.life.Closing, callTimeout)
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return l.s.noReply()
	case <-call.Done():
		cancel()
		return l.s.noReply()
	}
	end := func() {
		cancel()
		l.idle.Reset(clientIdle)
		<-l.turn
	}
	if l.conn == nil || l.conn.dead(call) {
		if err := l.connectFor(ctx, call, end); err != nil {
			return err
		}
	}
	defer end()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	}
	err := f(call, l.conn)
	if err != nil && (!fromServer(err) || isReadOnly(err)) {
		l.disconnect()
		if call.Err() != nil {
			return l.s.noReply()
		}
	}
	return err
}

// connectFor connects for a call. Unless it returns nil, end is called when connecting has ended. If ctx
// ends, connecting continues in the background, because callers with less time than its round trips would
// never get a connection. If the time of the call ends, connecting is ended, but the caller does not wait
// for that: the dialer of an application may not look at its context.
func (l *lane) connectFor(ctx, call context.Context, end func()) error {
	connected := make(chan error)
	started := l.s.background(func() {
		err := l.connect(call)
		select {
		case connected <- err:
		case <-ctx.Done():
			end()
		case <-call.Done():
			end()
		}
	})
	if !started {
		end()
		return l.s.life.ErrClosed
	}
	select {
	case err := <-connected:
		if err == nil {
			return nil
		}
		end()
		if call.Err() == nil {
			return err
		}
	case <-ctx.Done():
	case <-call.Done():
	}
	return l.s.noReply()
}

// connect makes a new connection. The caller has the turn.
func (l *lane) connect(ctx context.Context) (err error) {
	l.disconnect()
	if l.conn, err = connect(ctx, l.s.db); err != nil {
		return err
	}
	// The application may have changed the database of the connection.
	if _, err = l.conn.ExecContext(ctx, "USE "+identifier(l.s.database)); err == nil {
		err = l.conn.prepare(ctx, &l.s.sql)
	}
	if err != nil {
		l.disconnect()
		return err
	}
	return ctx.Err()
}

// connect sets up a connection of a pool. It drops idle connections on which nothing arrives.
func connect(ctx context.Context, db *sql.DB) (*conn, error) {
	for {
		idle := db.Stats().Idle > 0 // otherwise the connection is new, and may be slow
		pooled, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: pooled}
		first, cancel := ctx, func() {}
		if idle {
			first, cancel = context.WithTimeout(ctx, idlePatience)
		}
		_, err = c.ExecContext(first, session[0])
		silent := err != nil && first.Err() != nil
		cancel()
		for _, statement := range session[1:] {
			if err == nil {
				_, err = c.ExecContext(ctx, statement)
			}
		}
		if err == nil {
			return c, nil
		}
		c.discard()
		if !silent || ctx.Err() != nil {
			return nil, err
		}
	}
}

// discard closes the connection. It does not return to the pool with a session that the store has set up.
func (c *conn) discard() {
	c.Raw(func(any) error { return driver.ErrBadConn }) // makes the pool close it
	c.Close()
}

// prepare prepares the statements for one name.
func (c *conn) prepare(ctx context.Context, st *statements) error {
	_, _, err := c.acquire.prepared(ctx, c, 1, st.acquireOf)
	if err == nil {
		_, _, err = c.release.prepared(ctx, c, 1, st.releaseOf)
	}
	if isNumber(err, errManyStatements) {
		return nil // see plain
	}
	return err
}

// dead reports whether the server or the driver has closed the connection. It sends nothing.
func (c *conn) dead(ctx context.Context) bool {
	return c.Raw(func(driverConn any) error {
		if r, ok := driverConn.(driver.SessionResetter); ok {
			return r.ResetSession(ctx)
		}
		return nil
	}) != nil
}

// disconnect closes the connection. The caller has the turn.
func (l *lane) disconnect() {
	if l.conn != nil {
		l.conn.discard()
		l.conn = nil
	}
}

// disconnectIdle closes the connection, unless it is in use.
func (l *lane) disconnectIdle() {
	select {
	case l.turn <- struct{}{}:
		l.disconnect()
		<-l.turn
	default:
	}
}

// close closes the lane. Its last call ends with the life of the store. It keeps the turn forever.
func (l *lane) close() {
	l.turn <- struct{}{}
	l.idle.Stop()
	l.disconnect()
}

// query reads each row of a result into dest, and then calls row.
func (c *conn) query(ctx context.Context, query string, row func(), dest ...any) error {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		row()
	}
	return rows.Err()
}

// exec runs a statement and returns how many rows it changed.
func (c *conn) exec(ctx context.Context, query string) (int64, error) {
	result, err := c.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// fromServer reports whether the server refused a statement. The connection is then still usable.
func fromServer(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my)
}

// isReadOnly reports whether the server refuses to write.
func isReadOnly(err error) bool { return isNumber(err, 1290, 1836, 1792) }

// isLocked reports whether a statement has waited too long for a row or a table.
func isLocked(err error) bool { return isNumber(err, errRowLocked, errTimeLimit) }

func isNumber(err error, numbers ...uint16) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && slices.Contains(numbers, my.Number)
}

// lacksRight reports whether the user has no right to a table or to a column.
func lacksRight(err error) bool { return isNumber(err, 1142, 1143) }

// wrongDatabase reports whether the user has no right to the database, or it does not exist.
func wrongDatabase(err error) bool { return isNumber(err, 1044, 1049) }
