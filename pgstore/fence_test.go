package pgstore_test

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

var databases atomic.Int64

func TestFence(t *testing.T) {
	p := server(t)
	suites.SQLFence(t, suites.FenceDatabase{
		Open: func(t testing.TB) (*sql.DB, sqlfence.Dialect) {
			name := fmt.Sprintf("fence%d", databases.Add(1))
			p.Must("CREATE DATABASE " + name)
			db, err := sql.Open("pgx", "postgres://postgres@"+p.Addr()+"/"+name+"?sslmode=disable")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			return db, sqlfence.PostgreSQL("public")
		},
		Elsewhere: func(testing.TB) (create, use string, there sqlfence.Dialect) {
			return `CREATE SCHEMA "else""where"`, `SET search_path TO "else""where", public`, sqlfence.PostgreSQL(`else"where`)
		},
	})
}
