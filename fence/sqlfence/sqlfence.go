// Package sqlfence refuses the writes of a holder after a newer holder has shown its token, in the database
// that it writes to. See package fence for what fencing tokens are and why a lock alone cannot do this.
//
// A small table in the same database has the highest token seen for each resource. The holder checks its
// token against that table in the transaction that writes:
//
//	err := locks.Do(ctx, "account:42", func(ctx context.Context) error {
//		tx, err := db.BeginTx(ctx, nil)
//		if err != nil {
//			return err
//		}
//		defer tx.Rollback()
//		if err := sqlfence.SQLite.Check(ctx, tx, "account:42", holdfast.TokenFrom(ctx)); err != nil {
//			return err // errors.Is(err, fence.ErrStale): a newer holder has written
//		}
//		… write with tx …
//		return tx.Commit()
//	})
//
// Check is one statement, which also raises the table to the token. It is a write, so two transactions that
// check one resource do not run at the same time: the second one sees the result of the first. Make it the
// first statement of the transaction. On SQLite this also avoids the error of a transaction that reads before
// it writes.
//
// A holder that reads, computes and then writes calls [Dialect.Raise] when it has acquired the lock, before
// it reads. Otherwise a late write of the previous holder could still land in between.
//
// After a pause the context of the lease has ended, so a write with that context fails before it reaches the
// database. The check is for writes that were already in flight, and for code that does not use the context.
//
// A program that uses PostgreSQL through pgx, without database/sql, checks with [CheckPgx]. The database need
// not be the one that keeps the locks.
//
// The table grows by one row for each resource. Its rows are never removed automatically, because a holder
// can be paused for any time. All tokens of a resource must come from exclusive leases of one name.
//
// All transactions have to check the same table. On a server with several databases or schemas, the current
// one may differ between the connections of a pool, so [MySQL] and [PostgreSQL] take the one that has the
// table.
package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/store"
)

// A Dialect is a kind of database, and the place of the table in it.
type Dialect struct {
	name   string
	create string
	check  string // takes a resource and a token, raises the token, and returns the highest one

	// byInsertID says that the check returns the token as the last insert ID, and no rows.
	byInsertID bool

	err error // what is wrong with the dialect
}

const (
	table      = "holdfast_fences"
	postgreSQL = "PostgreSQL"
)

// SQLite is the dialect of SQLite 3.35 and later, with any driver.
var SQLite = Dialect{
	name: "SQLite",
	create: `CREATE TABLE IF NOT EXISTS holdfast_fences (
	resource TEXT PRIMARY KEY,
	token    INTEGER NOT NULL
) WITHOUT ROWID`,
	check: `INSERT INTO holdfast_fences (resource, token) VALUES (?, ?)
	ON CONFLICT (resource) DO UPDATE SET token = max(token, excluded.token)
	RETURNING token`,
}

// MySQL returns the dialect of MySQL 8 and MariaDB 10.11 and later, with the driver github.com/go-sql-driver/mysql,
// for a table in that database. The table needs an engine with transactions, such as InnoDB.
func MySQL(database string) Dialect {
	return Dialect{
		name: "MySQL",
		create: `CREATE TABLE IF NOT EXISTS holdfast_fences (
	resource VARBINARY(512) NOT NULL,
	token    BIGINT         NOT NULL,
	PRIMARY KEY (resource)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC`,
		check: `INSERT INTO holdfast_fences (resource, token) VALUES (?, LAST_INSERT_ID(?))
	ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, VALUES(token)))`,
		byInsertID: true,
	}.in("database", database, "`")
}

// PostgreSQL returns the dialect of PostgreSQL 9.5 and later, with any driver, for a table in that schema,
// such as "public". With the isolation level repeatable read or serializable, a transaction may fail to
// serialize if another one checks the same resource at the same time. Retry it, like every such transaction.
func PostgreSQL(schema string) Dialect {
	return Dialect{
		name: postgreSQL,
		create: `CREATE TABLE IF NOT EXISTS holdfast_fences (
	resource TEXT COLLATE "C" PRIMARY KEY,
	token    BIGINT NOT NULL
) WITH (fillfactor = 70)`,
		check: `INSERT INTO holdfast_fences AS f (resource, token) VALUES ($1, $2)
	ON CONFLICT (resource) DO UPDATE SET token = greatest(f.token, excluded.token)
	RETURNING token`,
	}.in("schema", schema, `"`)
}

// in returns the dialect for a table in a place, whose name is quoted.
func (d Dialect) in(kind, place, quote string) Dialect {
	if place == "" || strings.Contains(place, "\x00") {
		d.err = fmt.Errorf("holdfast: %w: fencing tokens: %s %q: want the name of the %s with the table %s", store.ErrInvalid, kind, place, kind, table)
	}
	qualified := quote + strings.ReplaceAll(place, quote, quote+quote) + quote + "." + table
	d.create, d.check = strings.Replace(d.create, table, qualified, 1), strings.Replace(d.check, table, qualified, 1)
	return d
}

// An Execer is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// A Querier is a *sql.Tx, or a *sql.Conn within a transaction.
type Querier interface {
	Execer
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// String returns the name of the database.
func (d Dialect) String() string { return d.name }

// CreateTable creates the table holdfast_fences, unless it exists, for programs without schema migrations;
// others use the statement of [Dialect.Schema] there. It returns an error that matches holdfast.ErrInvalid if
// the name of the database or schema is empty, and otherwise the error of the database.
func (d Dialect) CreateTable(ctx context.Context, db Execer) error {
	if d.err != nil {
		return d.err
	}
	if _, err := db.ExecContext(ctx, d.create); err != nil {
		return fmt.Errorf("holdfast: create the table of fencing tokens: %w", err)
	}
	return nil
}

// Schema returns the statement that creates the table holdfast_fences.
func (d Dialect) Schema() string { return d.create }

// Check checks a token in the caller's transaction. It returns nil if no higher token was seen for that
// resource, and records the token; the commit of the transaction makes that permanent. After any error the
// transaction must be rolled back.
//
// It returns a *fence.StaleError if a higher token was seen, an error that matches holdfast.ErrInvalid if no
// lease can have that token or the resource is not a valid name, and otherwise the error of the database.
func (d Dialect) Check(ctx context.Context, tx Querier, resource string, token int64) error {
	if err := d.valid(resource, token); err != nil {
		return err
	}
	highest, err := d.raise(ctx, tx, resource, token)
	return verdict(resource, token, highest, err)
}

// verdict returns the error of a check that found this highest token, or that failed with err.
func verdict(resource string, token, highest int64, err error) error {
	if err != nil {
		return fmt.Errorf("holdfast: check fencing token %d of %q: %w", token, resource, err)
	}
	if highest > token {
		return &fence.StaleError{Token: token, Highest: highest}
	}
	return nil
}

// valid returns an error if the dialect, the resource or the token is invalid.
func (d Dialect) valid(resource string, token int64) error {
	if d.err != nil {
		return d.err
	}
	if err := store.CheckName(resource); err != nil {
		return fmt.Errorf("holdfast: fenced resource: %w", err)
	}
	if token < 1 || token > store.MaxToken {
		return fmt.Errorf("holdfast: %w: fencing token %d: want the result of Lease.Token, a number from 1 to 2^53-1", store.ErrInvalid, token)
	}
	return nil
}

// raise returns the highest token of the resource, including this one.
func (d Dialect) raise(ctx context.Context, tx Querier, resource string, token int64) (highest int64, err error) {
	if !d.byInsertID {
		err = tx.QueryRowContext(ctx, d.check, resource, token).Scan(&highest)
		return highest, err
	}
	result, err := tx.ExecContext(ctx, d.check, []byte(resource), token)
	if err != nil {
		return 0, err
	}
	if highest, err = result.LastInsertId(); err == nil && highest == 0 {
		err = errors.New("the database did not return the token")
	}
	return highest, err
}

// Raise makes the resource refuse lower tokens, in a transaction of its own. A holder calls it after
// acquiring the lock, before it reads the data on which its writes depend. The errors are those of
// [Dialect.Check]; a *fence.StaleError means that the caller is not the newest holder.
func (d Dialect) Raise(ctx context.Context, db *sql.DB, resource string, token int64) error {
	if err := d.valid(resource, token); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil) // the connections of db may not commit by themselves
	if err == nil {
		defer tx.Rollback()
		if err := d.Check(ctx, tx, resource, token); err != nil {
			return err
		}
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("holdfast: raise fencing token of %q: %w", resource, err)
	}
	return nil
}
