package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

func TestStaleTokensAreRefusedInTheDatabase(t *testing.T) {
	suites.SQLFence(t, suites.FenceDatabase{
		Open: func(t testing.TB) (*sql.DB, sqlfence.Dialect) {
			t.Helper()
			path := filepath.Join(t.TempDir(), "app.db")
			db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate")
			must(t, err)
			t.Cleanup(func() { db.Close() })
			return db, sqlfence.SQLite
		},
	})
}

// The table of fencing tokens may be in the database of an application that uses SQLite.
func Example_fence() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has its own database in memory
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
