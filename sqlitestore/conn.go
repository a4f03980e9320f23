package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// A conn is one connection to a file, used by one goroutine at a time.
//
// It uses the driver directly. The pool of database/sql is of no use for a single connection, and
// takes a third of the time of a statement. The context passed to the driver never ends, because
// otherwise the driver starts a goroutine per statement. Statements never wait for a lock: see Store.retry.
type conn struct {
	conn  driver.Conn
	stmts map[string]*preparedStmt
}

// A preparedStmt is a prepared statement with buffers that its executions reuse.
type preparedStmt struct {
	stmt driver.Stmt
	args []driver.NamedValue
	row  []driver.Value
}

func dial(dsn string) (*conn, error) {
	// Use a separate driver, because hooks that the program registers with the global driver must
	// not apply to this file.
	c, err := new(sqlite.Driver).Open(dsn)
	if err != nil {
		return nil, err
	}
	return &conn{conn: c, stmts: make(map[string]*preparedStmt)}, nil
}

func (c *conn) close() error {
	var err error
	for _, s := range c.stmts {
		err = errors.Join(err, s.stmt.Close())
	}
	return errors.Join(err, c.conn.Close())
}

// prepare returns the statement of a query. It prepares each query once.
func (c *conn) prepare(query string, args []driver.Value) (*preparedStmt, error) {
	s := c.stmts[query]
	if s == nil {
		stmt, err := c.conn.Prepare(query)
		if err != nil {
			return nil, err
		}
		s = &preparedStmt{stmt: stmt, args: make([]driver.NamedValue, len(args))}
		c.stmts[query] = s
	}
	for i, v := range args {
		s.args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return s, nil
}

// exec runs a statement and returns the number of rows that it changed.
func (c *conn) exec(query string, args ...driver.Value) (int64, error) {
	s, err := c.prepare(query, args)
	if err != nil {
		return 0, err
	}
	result, err := s.stmt.(driver.StmtExecContext).ExecContext(context.Background(), s.args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// each calls f with every row of a query. The row is valid only during the call.
func (c *conn) each(f func(row []driver.Value) error, query string, args ...driver.Value) error {
	s, err := c.prepare(query, args)
	if err != nil {
		return err
	}
	rows, err := s.stmt.(driver.StmtQueryContext).QueryContext(context.Background(), s.args)
	if err != nil {
		return err
	}
	if s.row == nil {
		s.row = make([]driver.Value, len(rows.Columns()))
	}
	for err == nil {
		if err = rows.Next(s.row); err == nil {
			err = f(s.row)
		}
	}
	if closeErr := rows.Close(); err == io.EOF {
		err = closeErr
	}
	return err
}

// get returns the first row of a query, or nil if there is none. The row is valid until the
// next execution of the same query.
func (c *conn) get(query string, args ...driver.Value) ([]driver.Value, error) {
	var first []driver.Value
	err := c.each(func(row []driver.Value) error {
		first = row
		return io.EOF
	}, query, args...)
	return first, err
}

// script runs several statements that return no rows. They are not kept prepared.
func (c *conn) script(text string) error {
	_, err := c.conn.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return err
}

// integer and text read a column. Tables are STRICT, so a column has no value of another type.
func integer(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

// extendedCode returns the extended result code of an error of SQLite, or 0 for other errors.
func extendedCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// resultCode returns the primary result code of an error of SQLite, or 0 for other errors.
func resultCode(err error) int { return extendedCode(err) & 0xff }

// busy reports whether a statement failed without effect because another connection has locked the file.
func busy(err error) bool {
	code := resultCode(err)
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_PROTOCOL
}
