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
	// Open returns an empty database, and the dialect for a table in it. Its transactions wait for
	// each other, and it is closed at the end of the test.
	Open func(t testing.TB) (*sql.DB, sqlfence.Dialect)

	// Elsewhere returns a statement that creates another database or schema, a statement that makes
	// it the current one of a connection, and the dialect for a table in it. It is nil if a
	// connection has only one.
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

// A sqlTx is a transaction of database/sql.
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
	FenceDatabase
	db      *sql.DB
	dialect sqlfence.Dialect
}

func (b bed) begin(ctx context.Context) (FenceTx, error) {
	if b.Begin != nil {
		return b.Begin(ctx, b.db, b.dialect)
	}
	tx, err := b.db.BeginTx(ctx, nil)
	return sqlTx{tx, b.dialect}, err
}

func (b bed) raise(ctx context.Context, resource string, token int64) error {
	if b.Raise != nil {
		return b.Raise(ctx, b.db, b.dialect, resource, token)
	}
	return b.dialect.Raise(ctx, b.db, resource, token)
}

// SQLFence tests a dialect.
func SQLFence(t *testing.T, d FenceDatabase) {
	t.Run("a stale writer is refused in its transaction", d.aStaleWriterIsRefusedInItsTransaction)
	t.Run("a raised resource refuses the old writer", d.aRaisedResourceRefusesTheOldWriter)
	t.Run("a check is rolled back with its transaction", d.aCheckIsRolledBackWithItsTransaction)
	t.Run("concurrent writers never go back to a lower token", d.concurrentWritersNeverGoBackToALowerToken)
	t.Run("a token that no grant can have is invalid", d.aTokenThatNoGrantCanHaveIsInvalid)
	if d.Elsewhere != nil {
		t.Run("a connection in another place checks the same table", d.aConnectionInAnotherPlaceChecksTheSameTable)
	}
}

// accounts opens a database with one account.
func (d FenceDatabase) accounts(t testing.TB) bed {
	t.Helper()
	db, dialect := d.Open(t)
	tx, err := db.BeginTx(t.Context(), nil) // the connections of db may not commit by themselves
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, statement := range []string{
		"CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)",
		"INSERT INTO account VALUES (42, 100)",
	} {
		if _, err := tx.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time does nothing
		if err := dialect.CreateTable(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	return bed{d, db, dialect}
}

// set writes a balance under a token, in one transaction.
func (b bed) set(ctx context.Context, token int64, balance int) error {
	tx, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	if err := tx.Check(ctx, "account:42", token); err != nil {
		return err
	}
	if err := tx.Exec(ctx, fmt.Sprintf("UPDATE account SET balance = %d WHERE id = 42", balance)); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (b bed) balance(t *testing.T) (n int) {
	t.Helper()
	if err := b.db.QueryRow("SELECT balance FROM account WHERE id = 42").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (d FenceDatabase) aStaleWriterIsRefusedInItsTransaction(t *testing.T) {
	b := d.accounts(t)
	const first, second = 33, 34
	for _, n := range []int{90, 80} { // the same token may write repeatedly
		if err := b.set(t.Context(), second, n); err != nil {
			t.Fatal(err)
		}
	}
	err := b.set(t.Context(), first, 70)
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) {
		t.Fatalf("error %v, want a StaleError", err)
	}
	if stale.Token != first || stale.Highest != second {
		t.Errorf("%+v, want the token %d and the highest %d", *stale, first, second)
	}
	if n := b.balance(t); n != 80 {
		t.Errorf("balance %d, want 80", n)
	}
}

// Without Raise, a write of the old holder could land between the new holder's first read and its
// first write.
func (d FenceDatabase) aRaisedResourceRefusesTheOldWriter(t *testing.T) {
	ctx, b := t.Context(), d.accounts(t)
	if err := b.set(ctx, 33, 90); err != nil {
		t.Fatal(err)
	}
	if err := b.raise(ctx, "account:42", 34); err != nil {
		t.Fatal(err)
	}
	if err := b.set(ctx, 33, 70); !errors.Is(err, fence.ErrStale) {
		t.Errorf("error %v, want ErrStale", err)
	}
	if err := b.raise(ctx, "account:42", 33); !errors.Is(err, fence.ErrStale) {
		t.Errorf("error %v, want ErrStale", err)
	}
	if err := b.raise(ctx, "account:43", 33); err != nil {
		t.Errorf("another resource: %v", err)
	}
	if n := b.balance(t); n != 90 {
		t.Errorf("balance %d, want 90", n)
	}
}

// A transaction that is rolled back must not raise the highest token.
func (d FenceDatabase) aCheckIsRolledBackWithItsTransaction(t *testing.T) {
	ctx, b := t.Context(), d.accounts(t)
	tx, err := b.begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Check(ctx, "account:42", 34); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.set(ctx, 33, 90); err != nil {
		t.Error(err)
	}
}

// Concurrent writers with increasing tokens must never overwrite the balance of a higher token.
func (d FenceDatabase) concurrentWritersNeverGoBackToALowerToken(t *testing.T) {
	ctx, b := t.Context(), d.accounts(t)
	var wg sync.WaitGroup
	var highest atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range 25 {
				token := highest.Add(1)
				if err := b.set(ctx, token, int(token)); err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := b.balance(t); n != 100 {
		t.Errorf("balance of the token %d, want the highest, 100", n)
	}
}

func (d FenceDatabase) aTokenThatNoGrantCanHaveIsInvalid(t *testing.T) {
	ctx, b := t.Context(), d.accounts(t)
	for _, token := range []int64{0, -1, store.MaxToken + 1} {
		if err := b.raise(ctx, "account:42", token); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("token %d: %v, want ErrInvalid", token, err)
		}
	}
	if err := b.raise(ctx, "", 1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no resource: %v, want ErrInvalid", err)
	}
}

// An application may change the current database or schema of a connection, and return it to its
// pool. If that one has a table of tokens too, a stale token must not be checked there.
func (d FenceDatabase) aConnectionInAnotherPlaceChecksTheSameTable(t *testing.T) {
	ctx, b := t.Context(), d.accounts(t)
	if err := b.raise(ctx, "account:42", 34); err != nil {
		t.Fatal(err)
	}
	create, use, there := d.Elsewhere(t)
	conn, err := b.db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{create, use} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := there.CreateTable(ctx, conn); err != nil {
		t.Fatal(err)
	}
	if err := b.dialect.CreateTable(ctx, conn); err != nil {
		t.Fatal(err)
	}
	for _, token := range []int64{33, 34} {
		tx, err := b.begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Exec(ctx, use); err != nil {
			t.Fatal(err)
		}
		err = tx.Check(ctx, "account:42", token)
		if errors.Is(err, fence.ErrStale) != (token == 33) {
			t.Errorf("token %d: %v", token, err)
		}
		tx.Rollback(ctx)
	}
}
