package mysqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

const patience = suites.Patience

var (
	request, queued, renewal  = suites.Request, suites.Queued, suites.Renewal
	granted, refused, release = suites.Granted, suites.Refused, suites.Release
	extended, leave           = suites.AllExtended, suites.Leave
	limited, eventually       = suites.Limited, suites.Eventually
)

// one is a server that tests share.
var one *servers.MariaDB

func TestMain(m *testing.M) {
	host := new(servers.Host)
	one = servers.StartMariaDB(host, servers.MariaDBOptions{Config: []string{"--max-connections=500"}})
	code := m.Run()
	host.End()
	os.Exit(code)
}

// connectTo returns a pool of connections to a new database. Change modifies the settings of the connections.
func connectTo(t testing.TB, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	admin := poolOf(t, servers.MariaDBDatabase, nil)
	name := "db_" + strings.ToLower(rand.Text()[:12])
	mustExec(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { mustExec(t, admin, "DROP DATABASE "+name) })
	return poolOf(t, name, change)
}

// poolOf returns a pool of connections to a database.
func poolOf(t testing.TB, database string, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	return poolAt(t, one, func(config *mysql.Config) {
		config.DBName = database
		if change != nil {
			change(config)
		}
	})
}

// poolAt returns a pool of connections to a server.
func poolAt(t testing.TB, server *servers.MariaDB, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(server.DSN())
	must(t, err)
	if change != nil {
		change(config)
	}
	connector, err := mysql.NewConnector(config)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

// urlIn returns the URL of a store in a database, at an address of the server.
func urlIn(database, addr string) string {
	return strings.TrimSuffix(one.URL(addr), servers.MariaDBDatabase) + database
}

// openStore opens a store by a URL.
func openStore(t testing.TB, url string) *Store {
	t.Helper()
	s, err := store.Open(context.Background(), url)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s.(*Store)
}

// mustExec executes scripts, each of which is a statement, or several of them, in a pool, session or transaction.
func mustExec(t testing.TB, db interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, scripts ...string,
) {
	t.Helper()
	for statement := range strings.SplitSeq(strings.Join(scripts, ";\n"), ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.ExecContext(limited(t), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// scan reads the row that a query returns.
func scan(t testing.TB, db *sql.DB, query string, into ...any) {
	t.Helper()
	if err := db.QueryRowContext(limited(t), query).Scan(into...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
