package pgstore_test

import (
	"context"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

const patience = suites.Patience

var (
	request, renewal          = suites.Request, suites.Renewal
	granted, refused, release = suites.Granted, suites.Refused, suites.Release
	extended, leave, pair     = suites.AllExtended, suites.Leave, suites.TokenOf
	eventually, client        = suites.Eventually, suites.Client
)

// long makes some tests run for longer: see make soak.
var long = flag.Duration("long", 0, "how long the test of 64 clients runs; 0 means some seconds")

// shared is a server for all tests that do not harm it.
var shared struct {
	once   sync.Once
	server *servers.Postgres
}

var kept servers.Host

func TestMain(m *testing.M) {
	// Tests with a server of their own run in parallel. They mostly wait for time limits.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("4")
	}
	code := m.Run()
	kept.End()
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
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// newPool opens a pool of an application.
func newPool(t testing.TB, url string, conns int32) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, url, func(config *pgxpool.Config) { config.MaxConns = conns })
}

// poolWith opens a pool of an application with settings of its own.
func poolWith(t testing.TB, url string, change func(config *pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	must(t, err)
	change(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
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

func openStore(t testing.TB, url string) *pgstore.Store { return open(t, url).(*pgstore.Store) }

// newIn returns a store on a pool of an application.
func newIn(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.Store {
	t.Helper()
	s, err := pgstore.New(pool, opts...)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
