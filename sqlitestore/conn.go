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
// It uses the driver without database/sql on top. A pool is of no use to one connection
// that is shared under a lock, and costs a third of a statement's time. It also spares
// what the driver does with a context that can end, a goroutine for every statement:
// statements here never wait for anything (see Store.begin).
type conn struct {
	conn  driver.Conn
	stmts map[string]*statement
}

type statement struct {
	stmt driver.Stmt
	args []driver.NamedValue
	row  []driver.Value
}

func dial(dsn string) (*conn, error) {
	// A driver of our own: what the program registers with the common one, such as hooks,
	// is not for this file.
	c, err := new(sqlite.Driver).Open(dsn)
	if err != nil {
		return nil, err
	}
	return &conn{conn: c, stmts: make(map[string]*statement)}, nil
}

func (c *conn) close() error {
	var err error
	for _, s := range c.stmts {
		err = errors.Join(err, s.stmt.Close())
	}
	return errors.Join(err, c.conn.Close())
}

// prepare returns the statement of a query, which is prepared once.
func (c *conn) prepare(query string, args []driver.Value) (*statement, error) {
	s := c.stmts[query]
	if s == nil {
		stmt, err := c.conn.Prepare(query)
		if err != nil {
			return nil, err
		}
		s = &statement{stmt: stmt}
		c.stmts[query] = s
	}
	if s.args == nil && len(args) > 0 {
		s.args = make([]driver.NamedValue, len(args))
	}
	for i, v := range args {
		s.args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return s, nil
}

// exec runs a statement and returns how many rows it changed.
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

// each calls f with every row of a query. The row is valid during the call only.
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

// get returns the first row of a query, nil if there is none. It is valid until the same
// query is made again.
func (c *conn) get(query string, args ...driver.Value) ([]driver.Value, error) {
	var first []driver.Value
	err := c.each(func(row []driver.Value) error {
		first = row
		return io.EOF
	}, query, args...)
	return first, err
}

// script runs several statements that return nothing. They are not kept.
func (c *conn) script(text string) error {
	_, err := c.conn.(driver.ExecerContext).ExecContext(context.Background(), text, nil)
	return err
}

// integer and text read a column. Columns are STRICT, so another type cannot be in them.
func integer(v driver.Value) int64 {
	n, _ := v.(int64)
	return n
}

func text(v driver.Value) string {
	s, _ := v.(string)
	return s
}

// codeOf is the primary result code of an error, 0 if it is none of SQLite's.
func codeOf(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// busy reports that another connection was in the way, and that nothing was done.
func busy(err error) bool {
	code := codeOf(err)
	return code == sqlite3.SQLITE_BUSY || code == sqlite3.SQLITE_PROTOCOL
}
