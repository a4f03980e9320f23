package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/pgstore"
)

func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	must(t, err)
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

func tryLock(t *testing.T, tx pgx.Tx, name string) bool {
	t.Helper()
	locked, err := pgstore.TryLockTx(t.Context(), tx, name)
	must(t, err)
	return locked
}

// The lock ends with its transaction in every case, and never stays on a connection that returns
// to the pool. Session locks have that defect with sql.Conn.Close.
func TestLockTxEndsWithItsTransaction(t *testing.T) {
	p := server(t)
	pool := newPool(t, p.URL(), 4)
	ends := map[string]func(pgx.Tx) error{
		"commit":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"rollback": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
		"a failed statement and a rollback": func(tx pgx.Tx) error {
			tx.Exec(t.Context(), "SELECT 1/0")
			return tx.Rollback(t.Context())
		},
		"the end of its connection": func(tx pgx.Tx) error {
			var pid int
			if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			p.Terminate(fmt.Sprint("pid = ", pid))
			return nil
		},
	}
	for what, end := range ends {
		t.Run(what, func(t *testing.T) {
			one, two := begin(t, pool), begin(t, pool)
			must(t, pgstore.LockTx(t.Context(), one, "tx"))
			must(t, pgstore.LockTx(t.Context(), one, "tx")) // again
			if tryLock(t, two, "tx") {
				t.Fatal("two transactions have the lock")
			}
			if !tryLock(t, two, "other") {
				t.Error("another name is locked")
			}
			must(t, end(one))
			if !tryLock(t, two, "tx") {
				t.Error("locked after the end of the transaction")
			}
			two.Rollback(t.Context())
		})
	}
}

func TestLockTxInASavepointEndsWithItsRollback(t *testing.T) {
	pool := newPool(t, server(t).URL(), 4)
	outer, other := begin(t, pool), begin(t, pool)
	for _, name := range []string{"rolled back", "released"} {
		savepoint, err := outer.Begin(t.Context())
		must(t, err)
		must(t, pgstore.LockTx(t.Context(), savepoint, name))
		if name == "released" {
			err = savepoint.Commit(t.Context())
		} else {
			err = savepoint.Rollback(t.Context())
		}
		must(t, err)
	}
	if !tryLock(t, other, "rolled back") {
		t.Error("the rollback of the savepoint did not release its lock")
	}
	if tryLock(t, other, "released") {
		t.Error("a lock of a released savepoint ended before its transaction")
	}
}

func TestLockTxReturnsWhenItsContextEnds(t *testing.T) {
	p := server(t)
	pool := newPool(t, p.URL(), 4)
	one, two := begin(t, pool), begin(t, pool)
	must(t, pgstore.LockTx(t.Context(), one, "ends"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := pgstore.LockTx(ctx, two, "ends"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the error of the context", err)
	}
	if err := pgstore.LockTx(t.Context(), one, "a\nb"); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}

// Transaction locks work behind a transaction pooler, and they do not conflict with the leases of
// clients.
func TestLockTxBehindPgBouncer(t *testing.T) {
	p := server(t)
	b := servers.StartPgBouncer(t, p)
	pool := poolWith(t, servers.PostgresURL(b.Addr()), func(config *pgxpool.Config) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	})
	granted(t, openStore(t, p.URL()), request("pooled tx"))
	for range 10 {
		one, two := begin(t, pool), begin(t, pool)
		if !tryLock(t, one, "pooled tx") || tryLock(t, two, "pooled tx") {
			t.Error("want the first transaction to have the lock, and not the second")
		}
		one.Rollback(t.Context())
		two.Rollback(t.Context())
	}
}
