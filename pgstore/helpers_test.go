package pgstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// patience bounds the wait for events that should happen soon. Only a failing test waits that
// long.
const patience = 20 * time.Second

// long makes some tests run for longer: see make soak.
var long = flag.Duration("long", 0, "how long the test of 64 clients runs; 0 means some seconds")

// shared is a server for all tests that do not harm it.
var shared struct {
	once   sync.Once
	server *servers.Postgres
}

// keeper is a testing.TB that lives as long as the test binary.
type keeper struct {
	testing.TB
	cleanups []func()
}

func (k *keeper) Helper()          {}
func (k *keeper) Cleanup(f func()) { k.cleanups = append(k.cleanups, f) }
func (k *keeper) Failed() bool     { return false }
func (k *keeper) TempDir() string {
	dir, err := os.MkdirTemp("", "pgstore")
	if err != nil {
		panic(err)
	}
	k.Cleanup(func() { os.RemoveAll(dir) })
	dir += "/1"
	if err := os.Mkdir(dir, 0o755); err != nil {
		panic(err)
	}
	return dir
}
func (k *keeper) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (k *keeper) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (k *keeper) Logf(f string, args ...any)   { fmt.Fprintf(os.Stderr, f+"\n", args...) }

var kept keeper

func TestMain(m *testing.M) {
	// Tests with a server of their own run in parallel. They mostly wait for time limits.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("4")
	}
	code := m.Run()
	for i := len(kept.cleanups) - 1; i >= 0; i-- {
		kept.cleanups[i]()
	}
	os.Exit(code)
}

// empty removes the rows that a test left on the shared server, so that it can run again.
const empty = `DO $$
DECLARE
	s text;
BEGIN
	FOR s IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('public', 'information_schema') LOOP
		EXECUTE format('DROP SCHEMA %I CASCADE', s);
	END LOOP;
	DROP TABLE IF EXISTS counted;
	DROP ROLE IF EXISTS "narrow app", stranger;
END $$`

// server returns the shared server.
func server(t testing.TB) *servers.Postgres {
	t.Helper()
	shared.once.Do(func() {
		shared.server = servers.StartPostgres(&kept, servers.PostgresOptions{NoSync: true, Config: []string{"max_connections=200"}})
	})
	t.Cleanup(func() { shared.server.Must(empty) })
	return shared.server
}

// open opens a store by a URL and closes it at the end of the test.
func open(t testing.TB, url string) store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// newPool opens a pool of an application.
func newPool(t testing.TB, url string, conns int32) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// request returns an exclusive request for a name under a new identity. Its TTL is longer than a
// test takes.
func request(name string) store.Request {
	return store.Request{
		Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1,
		TTL: time.Minute, Tokens: 1, Owner: "host/1234/abcdef",
	}
}

// granted makes a request, and fails the test if it is refused.
func granted(t testing.TB, s store.Store, req store.Request) store.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := s.Acquire(ctx, req)
	if err != nil || !answer.Granted() {
		t.Fatalf("Acquire %q: %+v, %v; want a grant", req.Name, answer.Refusal, err)
	}
	return answer
}

// refused makes a request, and fails the test if it is granted.
func refused(t testing.TB, s store.Store, req store.Request) *store.Refusal {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := s.Acquire(ctx, req)
	if err != nil || answer.Granted() {
		t.Fatalf("Acquire %q: %+v, %v; want a refusal", req.Name, answer, err)
	}
	return answer.Refusal
}

// eventually waits until a condition is true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %s", patience, what)
		}
	}
}

// rows lists the holders and waiters in a schema. Rows of free names stay for some seconds, and
// records of late requests for a minute.
func rows(t testing.TB, p *servers.Postgres, schema string) (list []string) {
	t.Helper()
	query := `SELECT 'name ' || name FROM SCHEMA.names n WHERE id IS NOT NULL OR crowd AND NOT EXISTS (SELECT FROM SCHEMA.ended e WHERE e.name = n.name)
		UNION ALL SELECT 'holder ' || name || id FROM SCHEMA.holders UNION ALL SELECT 'waiter ' || name || id FROM SCHEMA.waiters`
	for _, row := range p.Must(strings.ReplaceAll(query, "SCHEMA", schema)) {
		list = append(list, row[0])
	}
	return list
}
