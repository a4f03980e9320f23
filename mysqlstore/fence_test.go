package mysqlstore

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func TestStaleTokensAreRefusedInTheDatabase(t *testing.T) {
	for what, change := range map[string]func(*mysql.Config){
		"as by default":  nil,
		"autocommit off": func(c *mysql.Config) { c.Params = map[string]string{"autocommit": "0"} },
	} {
		t.Run(what, func(t *testing.T) {
			suites.SQLFence(t, suites.FenceDatabase{
				Open: func(t testing.TB) (*sql.DB, sqlfence.Dialect) {
					db := connectTo(t, change)
					db.SetMaxIdleConns(-1) // so that no transaction continues that of another connection
					return db, sqlfence.MySQL(databaseOf(t, db))
				},
				Elsewhere: func(t testing.TB) (create, use string, there sqlfence.Dialect) {
					name := "elsewhere `" + rand.Text()
					t.Cleanup(func() { mustExec(t, poolOf(t, "", nil), "DROP DATABASE "+identifier(name)) })
					return "CREATE DATABASE " + identifier(name), "USE " + identifier(name), sqlfence.MySQL(name)
				},
			})
		})
	}
}

func TestTheTableOfTokensNeedsADatabase(t *testing.T) {
	db := connectTo(t, nil)
	for _, err := range []error{
		sqlfence.MySQL("").CreateTable(t.Context(), db),
		sqlfence.MySQL("").Raise(t.Context(), db, "n", 1),
		sqlfence.PostgreSQL("").Raise(t.Context(), db, "n", 1),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%v, want ErrInvalid", err)
		}
	}
}
