package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

var databases atomic.Int64

// fenceDatabase returns a database for tests of fences, and remembers its pool in pools.
func fenceDatabase(t *testing.T, pools map[*sql.DB]*pgxpool.Pool) suites.FenceDatabase {
	t.Helper()
	p := server(t)
	return suites.FenceDatabase{
		Open: func(t testing.TB) (*sql.DB, sqlfence.Dialect) {
			name := fmt.Sprintf("fence%d", databases.Add(1))
			p.Must("CREATE DATABASE " + name)
			pool, err := pgxpool.New(t.Context(), "postgres://postgres@"+p.Addr()+"/"+name+"?sslmode=disable")
			must(t, err)
			t.Cleanup(pool.Close)
			db := stdlib.OpenDBFromPool(pool)
			t.Cleanup(func() { db.Close() })
			pools[db] = pool
			return db, sqlfence.PostgreSQL("public")
		},
		Elsewhere: func(testing.TB) (create, use string, there sqlfence.Dialect) {
			return `CREATE SCHEMA "else""where"`, `SET search_path TO "else""where", public`, sqlfence.PostgreSQL(`else"where`)
		},
	}
}

func TestFence(t *testing.T) {
	suites.SQLFence(t, fenceDatabase(t, make(map[*sql.DB]*pgxpool.Pool)))
}

// A pgxTx is a transaction of pgx.
type pgxTx struct {
	tx      pgx.Tx
	dialect sqlfence.Dialect
}

func (t pgxTx) Check(ctx context.Context, resource string, token int64) error {
	return sqlfence.CheckPgx(ctx, t.dialect, t.tx, resource, token)
}

func (t pgxTx) Exec(ctx context.Context, statement string) error {
	_, err := t.tx.Exec(ctx, statement)
	return err
}

func (t pgxTx) Commit(ctx context.Context) error   { return t.tx.Commit(ctx) }
func (t pgxTx) Rollback(ctx context.Context) error { return t.tx.Rollback(ctx) }

func TestFenceOfPgxTransactions(t *testing.T) {
	pools := make(map[*sql.DB]*pgxpool.Pool)
	d := fenceDatabase(t, pools)
	d.Begin = func(ctx context.Context, db *sql.DB, dialect sqlfence.Dialect) (suites.FenceTx, error) {
		tx, err := pools[db].Begin(ctx)
		return pgxTx{tx, dialect}, err
	}
	d.Raise = func(ctx context.Context, db *sql.DB, dialect sqlfence.Dialect, resource string, token int64) error {
		return sqlfence.CheckPgx(ctx, dialect, pools[db], resource, token)
	}
	suites.SQLFence(t, d)
}

func TestPgxChecksOnlyPostgreSQL(t *testing.T) {
	var pool *pgxpool.Pool // is not used
	for _, d := range []sqlfence.Dialect{sqlfence.SQLite, sqlfence.MySQL("shop"), {}} {
		if err := sqlfence.CheckPgx(t.Context(), d, pool, "account:42", 1); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", d, err)
		}
	}
}
