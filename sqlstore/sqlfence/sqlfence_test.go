package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/sqlstore"
	"github.com/holdfast-lock/holdfast/sqlstore/sqlfence"
	"github.com/holdfast-lock/holdfast/store"
)

// accounts opens a database with one account, whose balance is 100.
func accounts(t testing.TB) *sql.DB {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	ctx := context.Background()
	if _, err := db.ExecContext(ctx, "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER); INSERT INTO account VALUES (42, 100)"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time does nothing
		if err := sqlfence.SQLite.CreateTable(ctx, db); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// set writes a balance under a token, in one transaction.
func set(ctx context.Context, db *sql.DB, token int64, balance int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := sqlfence.SQLite.Check(ctx, tx, "account:42", token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = ? WHERE id = 42", balance); err != nil {
		return err
	}
	return tx.Commit()
}

func balance(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT balance FROM account WHERE id = 42").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAStaleWriterIsRefusedInItsTransaction(t *testing.T) {
	ctx, db := t.Context(), accounts(t)
	// The first holder is paused for longer than its lease, and the second comes.
	s, err := sqlstore.OpenSQLite(ctx, filepath.Join(t.TempDir(), "locks.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	locks, err := holdfast.New(s)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	first, err := locks.Lock(ctx, "account:42")
	if err != nil {
		t.Fatal(err)
	}
	page, err := locks.Inspect(ctx, "account:42")
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.Break(ctx, "account:42", page.Holders[0].ID); err != nil {
		t.Fatal(err)
	}
	other, err := holdfast.New(s)
	if err != nil {
		t.Fatal(err)
	}
	second, err := other.Lock(ctx, "account:42")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Unlock(ctx)
	for _, n := range []int{90, 80} { // as often as it likes
		if err := set(ctx, db, second.Token(), n); err != nil {
			t.Fatal(err)
		}
	}
	err = set(ctx, db, first.Token(), 70)
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) {
		t.Fatalf("error %v, want a StaleError", err)
	}
	if stale.Token != first.Token() || stale.Highest != second.Token() {
		t.Errorf("%+v, want the token %d and the highest %d", *stale, first.Token(), second.Token())
	}
	if n := balance(t, db); n != 80 {
		t.Errorf("balance %d, want 80", n)
	}
}

// Without it the old write would land between the new holder's reading and its first
// write.
func TestARaiseRefusesTheOldBeforeTheNewHasWritten(t *testing.T) {
	ctx, db := t.Context(), accounts(t)
	if err := set(ctx, db, 33, 90); err != nil {
		t.Fatal(err)
	}
	if err := sqlfence.SQLite.Raise(ctx, db, "account:42", 34); err != nil {
		t.Fatal(err)
	}
	if err := set(ctx, db, 33, 70); !errors.Is(err, fence.ErrStale) {
		t.Errorf("error %v, want ErrStale", err)
	}
	if err := sqlfence.SQLite.Raise(ctx, db, "account:42", 33); !errors.Is(err, fence.ErrStale) {
		t.Errorf("error %v, want ErrStale", err)
	}
	if err := sqlfence.SQLite.Raise(ctx, db, "account:43", 33); err != nil {
		t.Errorf("another resource: %v", err)
	}
	if n := balance(t, db); n != 90 {
		t.Errorf("balance %d, want 90", n)
	}
}

// What is rolled back has raised nothing.
func TestACheckCountsWithItsTransaction(t *testing.T) {
	ctx, db := t.Context(), accounts(t)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlfence.SQLite.Check(ctx, tx, "account:42", 34); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := set(ctx, db, 33, 90); err != nil {
		t.Error(err)
	}
}

// Writers of rising tokens that run at once leave the balance of a token that was never
// overwritten by a lower one.
func TestWritersAtOnceNeverGoBack(t *testing.T) {
	ctx, db := t.Context(), accounts(t)
	var wg sync.WaitGroup
	var highest atomic.Int64
	for range 4 {
		wg.Go(func() {
			for range 25 {
				token := highest.Add(1)
				if err := set(ctx, db, token, int(token)); err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := balance(t, db); n != 100 {
		t.Errorf("balance of the token %d, want the highest, 100", n)
	}
}

func TestWhatNoGrantCanHaveIsInvalid(t *testing.T) {
	ctx, db := t.Context(), accounts(t)
	for _, token := range []int64{0, -1, store.MaxToken + 1} {
		if err := sqlfence.SQLite.Raise(ctx, db, "account:42", token); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("token %d: %v, want ErrInvalid", token, err)
		}
	}
	if err := sqlfence.SQLite.Raise(ctx, db, "", 1); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("no resource: %v, want ErrInvalid", err)
	}
}

func TestAMissingTableIsToldByTheDatabase(t *testing.T) {
	db := accounts(t)
	if _, err := db.Exec("DROP TABLE holdfast_fences"); err != nil {
		t.Fatal(err)
	}
	err := sqlfence.SQLite.Raise(t.Context(), db, "account:42", 1)
	if err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("error %v, want the database's", err)
	}
}

func ExampleDialect_Check() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has a memory of its own
	if err := sqlfence.SQLite.CreateTable(ctx, db); err != nil {
		fmt.Println(err)
		return
	}
	write := func(token int64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := sqlfence.SQLite.Check(ctx, tx, "account:42", token); err != nil {
			return err
		}
		// … write with tx …
		return tx.Commit()
	}
	fmt.Println(write(33))
	fmt.Println(write(34)) // the next holder
	fmt.Println(errors.Is(write(33), fence.ErrStale))
	// Output:
	// <nil>
	// <nil>
	// true
}
