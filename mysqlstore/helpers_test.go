package mysqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// patience bounds the wait for events that should happen soon. Only a failing test waits that
// long.
const patience = 30 * time.Second

// one is a server that tests share.
var one *servers.MariaDB

func TestMain(m *testing.M) {
	if run := children[os.Getenv(childEnv)]; run != nil {
		os.Exit(run(os.Args[1:]))
	}
	host := new(host)
	one = servers.StartMariaDB(host, servers.MariaDBOptions{Config: []string{"--max-connections=500"}})
	code := m.Run()
	host.end()
	os.Exit(code)
}

// connectTo returns a pool of connections to a new database. Change modifies the settings of the
// connections.
func connectTo(t testing.TB, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	admin := poolOf(t, servers.MariaDBDatabase, nil)
	name := "db_" + strings.ToLower(rand.Text()[:12])
	mustExec(t, admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { mustExec(t, admin, "DROP DATABASE "+name) })
	return poolOf(t, name, change)
}

// poolOf returns a pool of connections to a database. Change modifies the settings of the
// connections.
func poolOf(t testing.TB, database string, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	return poolAt(t, one, func(config *mysql.Config) {
		config.DBName = database
		if change != nil {
			change(config)
		}
	})
}

// poolAt returns a pool of connections to a server. Change modifies the settings of the
// connections.
func poolAt(t testing.TB, server *servers.MariaDB, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(config)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s.(*Store)
}

func request(name string) store.Request {
	return store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: time.Minute, Tokens: 1, Owner: "test"}
}

// granted acquires a name.
func granted(t testing.TB, s store.Store, req store.Request) store.Answer {
	t.Helper()
	answer, err := s.Acquire(limited(t), req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	if !answer.Granted() {
		t.Fatalf("refused: %+v", answer.Refusal)
	}
	return answer
}

// refused makes a request that cannot be granted.
func refused(t testing.TB, s store.Store, req store.Request) *store.Refusal {
	t.Helper()
	answer, err := s.Acquire(limited(t), req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	if answer.Granted() {
		t.Fatalf("granted: %+v", answer)
	}
	return answer.Refusal
}

func release(t testing.TB, s store.Store, req store.Request) {
	t.Helper()
	if err := s.Release(limited(t), req.Name, req.ID, store.Keep{}); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until a condition is true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func mustExec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(limited(t), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// host provides the part of testing.TB that a server needs which outlives a single test.
type host struct {
	testing.TB
	dirs []string
	ends []func()
}

func (h *host) Helper()                         {}
func (h *host) Cleanup(f func())                { h.ends = append(h.ends, f) }
func (h *host) Failed() bool                    { return false }
func (h *host) Log(args ...any)                 {}
func (h *host) Logf(format string, args ...any) {}
func (h *host) Name() string                    { return "host" }

func (h *host) Fatal(args ...any) { panic(args) }

func (h *host) Fatalf(format string, args ...any) { panic(append([]any{format}, args...)) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast-mariadb-")
	if err != nil {
		panic(err)
	}
	h.dirs = append(h.dirs, dir)
	return dir
}

func (h *host) end() {
	for i := len(h.ends) - 1; i >= 0; i-- {
		h.ends[i]()
	}
	for _, dir := range h.dirs {
		os.RemoveAll(dir)
	}
}

// childEnv is the environment variable that makes the test binary run another program: see
// children.
const childEnv = "HOLDFAST_MYSQL_CHILD"

// children are the programs that tests run as separate processes.
var children = map[string]func(args []string) int{}
