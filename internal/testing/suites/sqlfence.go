package suites

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/store"
)

// A FenceDatabase is a database on which a dialect is tested.
type FenceDatabase struct {
	// Open returns an empty database, whose transactions wait for each other, and the dialect for a table.
	Open func(t testing.TB) (*sql.DB, sqlfence.Dialect)

	// Elsewhere returns statements that create another database or schema and make it the current one, and the
	// dialect for a table in it. It is nil if a connection has only one.
	Elsewhere func(t testing.TB) (create, use string, there sqlfence.Dialect)

	// Begin begins a transaction on that database with another driver. It is nil for database/sql.
	Begin func(ctx context.Context, db *sql.DB, d sqlfence.Dialect) (FenceTx, error)

	// Raise is Dialect.Raise of that driver. It is nil for database/sql.
	Raise func(ctx context.Context, db *sql.DB, d sqlfence.Dialect, resource string, token int64) error
}

// A FenceTx is a transaction that checks tokens.
type FenceTx interface {
	Check(ctx context.Context, resource string, token int64) error
	Exec(ctx context.Context, statement string) error
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error // may be called after Commit
}

type sqlTx struct {
	tx      *sql.Tx
	dialect sqlfence.Dialect
}

func (t sqlTx) Check(ctx context.Context, resource string, token int64) error {
	return t.dialect.Check(ctx, t.tx, resource, token)
}

func (t sqlTx) Exec(ctx context.Context, statement string) error {
	_, err := t.tx.ExecContext(ctx, statement)
	return err
}

func (t sqlTx) Commit(context.Context) error   { return t.tx.Commit() }
func (t sqlTx) Rollback(context.Context) error { return t.tx.Rollback() }

// A bed is a database with one account, whose balance is 100.
type bed struct {
	*testing.T
	FenceDatabase
	db      *sql.DB
	dialect sqlfence.Dialect
}

func (b bed) begin() (FenceTx, error) {
	if b.Begin != nil {
		return b.Begin(b.Context(), b.db, b.dialect)
	}
	tx, err := b.db.BeginTx(b.Context(), nil)
	return sqlTx{tx, b.dialect}, err
}

func (b bed) raise(resource string, token int64) error {
	if b.Raise != nil {
		return b.Raise(b.Context(), b.db, b.dialect, resource, token)
	}
	return b.dialect.Raise(b.Context(), b.db, resource, token)
}

// set writes a balance under a token, in one transaction.
func (b bed) set(token int64, balance int) error {
	tx, err := b.begin()
	if err != nil {
		return err
	}
	defer tx.Rollback(b.Context())
	if err := tx.Check(b.Context(), "account:42", token); err != nil {
		return err
	}
	if err := tx.Exec(b.Context(), fmt.Sprintf("UPDATE account SET balance = %d WHERE id = 42", balance)); err != nil {
		return err
	}
	return tx.Commit(b.Context())
}

func (b bed) wantBalance(want int) {
	b.Helper()
	var n int
	must(b, b.db.QueryRow("SELECT balance FROM account WHERE id = 42").Scan(&n))
	if n != want {
		b.Errorf("balance %d, want %d", n, want)
	}
}

func (b bed) wantError(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// SQLFence tests a dialect.
func SQLFence(t *testing.T, d FenceDatabase) {
	run := func(name string, test func(b bed)) {
		t.Run(name, func(t *testing.T) { test(d.accounts(t)) })
	}
	run("a stale writer is refused in its transaction", func(b bed) {
		const first, second = 33, 34
		for _, n := range []int{90, 80} { // the same token may write repeatedly
			must(b, b.set(second, n))
		}
		err := b.set(first, 70)
		var stale *fence.StaleError
		if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) {
			b.Fatalf("error %v, want a StaleError", err)
		}
		if stale.Token != first || stale.Highest != second {
			b.Errorf("%+v, want the token %d and the highest %d", *stale, first, second)
		}
		b.wantBalance(80)
	})
	// Otherwise the old holder could write between the new holder's first read and its first write.
	run("a raised resource refuses the old writer", func(b bed) {
		must(b, b.set(33, 90))
		must(b, b.raise("account:42", 34))
		b.wantError("a write", b.set(33, 70), fence.ErrStale)
		b.wantError("Raise", b.raise("account:42", 33), fence.ErrStale)
		b.wantError("another resource", b.raise("account:43", 33), nil)
		b.wantBalance(90)
	})
	// A transaction that is rolled back must not raise the highest token.
	run("a check is rolled back with its transaction", func(b bed) {
		tx, err := b.begin()
		must(b, err)
		must(b, tx.Check(b.Context(), "account:42", 34))
		must(b, tx.Rollback(b.Context()))
		b.wantError("a lower token", b.set(33, 90), nil)
	})
	// Concurrent writers with increasing tokens must never overwrite the balance of a higher token.
	run("concurrent writers never go back to a lower token", func(b bed) {
		var wg sync.WaitGroup
		var highest atomic.Int64
		for range 4 {
			wg.Go(func() {
				for range 25 {
					token := highest.Add(1)
					if err := b.set(token, int(token)); err != nil && !errors.Is(err, fence.ErrStale) {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b.wantBalance(100) // the highest token
	})
	run("a token that no grant can have is invalid", func(b bed) {
		for _, token := range []int64{0, -1, store.MaxToken + 1} {
			b.wantError(fmt.Sprint("token ", token), b.raise("account:42", token), store.ErrInvalid)
		}
		b.wantError("no resource", b.raise("", 1), store.ErrInvalid)
	})
	if d.Elsewhere != nil {
		run("a connection in another place checks the same table", anotherPlace)
	}
}

// anotherPlace tests connections whose current database or schema the application has changed before it
// returned them. If that place has a table of tokens too, a stale token must not be checked there.
func anotherPlace(b bed) {
	must(b, b.raise("account:42", 34))
	create, use, there := b.Elsewhere(b)
	conn, err := b.db.Conn(b.Context())
	must(b, err)
	defer conn.Close()
	for _, statement := range []string{create, use} {
		_, err := conn.ExecContext(b.Context(), statement)
		must(b, err)
	}
	must(b, there.CreateTable(b.Context(), conn))
	must(b, b.dialect.CreateTable(b.Context(), conn))
	for _, token := range []int64{33, 34} {
		tx, err := b.begin()
		must(b, err)
		must(b, tx.Exec(b.Context(), use))
		err = tx.Check(b.Context(), "account:42", token)
		if errors.Is(err, fence.ErrStale) != (token == 33) {
			b.Errorf("token %d: %v", token, err)
		}
		tx.Rollback(b.Context())
	}
}

// accounts opens a database with one account.
func (d FenceDatabase) accounts(t *testing.T) bed {
	t.Helper()
	db, dialect := d.Open(t)
	tx, err := db.BeginTx(t.Context(), nil) // the connections of db may not commit by themselves
	must(t, err)
	defer tx.Rollback()
	for _, statement := range []string{
		"CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)",
		"INSERT INTO account VALUES (42, 100)",
	} {
		_, err := tx.Exec(statement)
		must(t, err)
	}
	must(t, tx.Commit())
	for range 2 { // a second time does nothing
		must(t, dialect.CreateTable(t.Context(), db))
	}
	return bed{t, d, db, dialect}
}
