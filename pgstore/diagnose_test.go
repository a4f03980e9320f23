package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// configure changes a setting of the server and waits until it has taken effect.
func configure(t testing.TB, p *servers.Postgres, name, value string) {
	t.Helper()
	p.Must(fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value))
	p.Must("SELECT pg_reload_conf()")
	servers.Poll(t, patience, func() error {
		if now := p.Value("SELECT current_setting('" + name + "')"); now != value {
			return fmt.Errorf("%s is %s", name, now)
		}
		return nil
	})
}

// A user with the documented rights checks a server that is set up well, and then servers with
// problems.
func TestDiagnoseFindsWhatIsSetUpWrongly(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{
		Password: true, Config: []string{"max_connections=30", "tcp_keepalives_idle=60"},
	})
	owner := p.URL()
	open(t, owner) // creates the schema
	p.Must("CREATE ROLE app LOGIN PASSWORD 'SECRET'")
	grants, err := pgstore.Grants("", "app")
	must(t, err)
	p.Must(grants)
	app := "postgres://app:SECRET@" + p.Addr() + "/postgres?sslmode=disable"
	var seen diagnosistest.Record
	findings := seen.Look(t, app, 30*time.Second)
	if strings.Contains(fmt.Sprint(findings), "SECRET") {
		t.Error("a password was printed")
	}
	if f := diagnosistest.Find(t, findings, "store.identity"); f.Level != store.LevelOK || !strings.Contains(f.Found, "database postgres") {
		t.Errorf("%+v", f)
	}

	for setting, want := range map[string]string{
		"default_transaction_read_only = on": "postgres.read-only failure",
		"idle_session_timeout = '5s'":        "postgres.idle-timeout failure",
		"statement_timeout = '1s'":           "postgres.statement-timeout warning",
		"tcp_keepalives_idle = 0":            "postgres.keepalives warning", // the system's default
	} {
		name, _, _ := strings.Cut(setting, " ")
		p.Must("ALTER ROLE app SET " + setting)
		seen.Look(t, app, 30*time.Second, want)
		p.Must("ALTER ROLE app RESET " + name)
	}
	for _, name := range []string{"fsync", "full_page_writes"} {
		configure(t, p, name, "off")
		seen.Look(t, app, 30*time.Second, "postgres.fsync failure")
		configure(t, p, name, "on")
	}
	p.Must("ALTER TABLE holdfast.names SET UNLOGGED")
	seen.Look(t, app, 30*time.Second, "postgres.unlogged failure")
	p.Must("ALTER TABLE holdfast.names SET LOGGED")
	seen.Look(t, app, 30*time.Second)

	t.Run("connections", func(t *testing.T) {
		for range 25 {
			connect(t, owner)
		}
		seen.Look(t, app, 30*time.Second, "postgres.connections warning")
	})
	t.Run("pooler", func(t *testing.T) {
		bouncer := servers.StartPgBouncer(t, p)
		seen.Look(t, servers.PostgresURL(bouncer.Addr()), 30*time.Second, "postgres.pooler warning")
	})
	t.Run("standby", func(t *testing.T) {
		replica := p.StartReplica(t)
		eventually(t, "the standby does not follow", func() bool { return p.Value("SELECT count(*) FROM pg_stat_replication") == "1" })
		seen.Look(t, app, 30*time.Second, "postgres.standbys warning")
		seen.Look(t, strings.Replace(app, p.Addr(), replica.Addr(), 1), 30*time.Second, "postgres.recovery failure")
		configure(t, p, "synchronous_standby_names", "replica")
		seen.Look(t, app, 30*time.Second)
		configure(t, p, "synchronous_standby_names", "")
	})
	t.Run("old snapshot", func(t *testing.T) {
		old, busy := connect(t, owner), connect(t, owner)
		exec(t, old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
		exec(t, busy, "SET synchronous_commit = off")
		exec(t, busy, "DO $$ BEGIN FOR i IN 1 .. 100001 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$")
		seen.Look(t, app, 30*time.Second, "postgres.old-snapshot warning")
		exec(t, old, "ROLLBACK")
		seen.Look(t, app, 30*time.Second)
	})
	t.Run("queue of notifications", func(t *testing.T) {
		conn := connect(t, owner)
		exec(t, conn, "LISTEN something")
		exec(t, conn, "BEGIN; SELECT 1")
		p.Must("SELECT count(pg_notify('something', i || repeat('x', 7900))) FROM generate_series(1, 12000) i")
		seen.Look(t, app, 30*time.Second, "postgres.notify-queue warning")
	})
	seen.Complete(t, "postgres.")
}

// connect opens a connection for a test.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// exec runs statements on a connection.
func exec(t testing.TB, conn *pgx.Conn, statements string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), statements, pgx.QueryExecModeSimpleProtocol)
	must(t, err)
}

func TestDiagnoseAfterCloseIsUnknown(t *testing.T) {
	s := openStore(t, server(t).URL())
	s.Close()
	diagnosistest.Want(t, s.Diagnose(t.Context(), time.Second), "postgres.recovery unknown")
}
