package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

var _ store.Diagnoser = (*Store)(nil)

// Diagnose checks whether the server is set up safely for locks with that TTL: see
// [store.Diagnoser]. It reads settings and statistics that every role may read.
func (s *Store) Diagnose(ctx context.Context, ttl time.Duration) []store.Finding {
	fail := func(err error) []store.Finding { return []store.Finding{recoveryCheck.Unknown(explain(err))} }
	if err := s.enter(ctx); err != nil {
		return fail(err)
	}
	defer s.life.Exit()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life.Closing, cancel)()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fail(err)
	}
	defer conn.Release()
	p := &patient{ctx: ctx, conn: conn.Conn(), store: s, ttl: ttl}
	if p.settings, err = p.readSettings(); err != nil {
		return fail(err)
	}
	findings := diagnosis.Run("", p, probes)
	clock, _, _ := diagnosis.Clock(ttl, func() (now time.Time, err error) {
		return now, p.value("SELECT clock_timestamp()", &now)
	})
	return append(findings, p.identity(), clock)
}

// A patient is the server to check, through one connection.
type patient struct {
	ctx      context.Context
	conn     *pgx.Conn
	store    *Store
	ttl      time.Duration
	settings map[string]string
}

// value reads the only row of a query. It uses a query mode that works behind a pooler.
func (p *patient) value(sql string, into ...any) error {
	err := p.conn.QueryRow(p.ctx, sql, pgx.QueryExecModeExec).Scan(into...)
	if isCode(err, "42501") {
		return &diagnosis.Denied{Right: "this role to run: " + sql, Err: oneLine{err}}
	}
	return err
}

// readSettings reads the settings of this session. Times and sizes are in the unit of each setting.
func (p *patient) readSettings() (map[string]string, error) {
	rows, _ := p.conn.Query(p.ctx, "SELECT name, coalesce(setting, '') FROM pg_settings", pgx.QueryExecModeExec) // the error is in rows, too
	all := make(map[string]string)
	var name, value string
	_, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		all[name] = value
		return nil
	})
	return all, err
}

func (p *patient) setting(name string) (string, error) {
	value, ok := p.settings[name]
	if !ok {
		return "", fmt.Errorf("pg_settings has no %s", name)
	}
	return value, nil
}

// number returns a setting that is a number, or ErrNotApplicable if this version does not have it.
func (p *patient) number(name string) (int64, error) {
	value, ok := p.settings[name]
	if !ok {
		return 0, diagnosis.ErrNotApplicable
	}
	return strconv.ParseInt(value, 10, 64)
}

// isOff returns a probe for settings that must not have the given value.
func isOff(value string, names ...string) func(*patient) (bool, string, error) {
	return func(p *patient) (bad bool, found string, err error) {
		var all []string
		for _, name := range names {
			is, err := p.setting(name)
			if err != nil {
				return false, "", err
			}
			bad = bad || is == value
			all = append(all, name+" "+is)
		}
		return bad, strings.Join(all, ", "), nil
	}
}

// identity returns a text that is the same for all clients of the same schema.
func (p *patient) identity() store.Finding {
	var system, database string
	if err := p.value("SELECT system_identifier::text, current_database() FROM pg_control_system()", &system, &database); err != nil {
		return diagnosis.Identity.Unknown(err)
	}
	return diagnosis.Identify("system %s, database %s, schema %s", system, database, p.store.schema)
}

const (
	mostConnections = 80   // percentage that may be in use
	mostQueue       = 0.01 // part of the queue of notifications that may be in use
	mostIdle        = 600  // seconds after which the server should check that a silent client still exists

	// mostAge is that of the oldest snapshot, in transactions. If all use one name, it is ten times slower then.
	mostAge = 100_000
)

var recoveryCheck = diagnosis.New("postgres.recovery", store.LevelFailure,
	"a standby refuses writes, so no lock can be taken, and after a failover the old holders and the new ones do not know of each other",
	"name the primary in the URL, or several hosts with target_session_attrs=read-write")

var probes = []diagnosis.Probe[*patient]{
	{Check: recoveryCheck, Look: func(p *patient) (standby bool, found string, err error) {
		err = p.value("SELECT pg_is_in_recovery()", &standby)
		return standby, map[bool]string{true: "this is a standby", false: "this is a primary"}[standby], err
	}},
	diagnosis.NewProbe("postgres.read-only", store.LevelFailure,
		"transactions are read only, so no lock can be taken",
		"ALTER ROLE … SET default_transaction_read_only = off, or connect to the primary",
		isOff("on", "default_transaction_read_only")),
	diagnosis.NewProbe("postgres.fsync", store.LevelFailure,
		"a crash of the machine loses locks or damages the database, and two clients hold one name",
		"fsync = on and full_page_writes = on",
		isOff("off", "fsync", "full_page_writes")),
	diagnosis.NewProbe("postgres.unlogged", store.LevelFailure,
		"a crash or failover empties the tables of the locks, and all names are given to others",
		"ALTER TABLE … SET LOGGED; only the tables waiters and ended may be unlogged",
		func(p *patient) (bool, string, error) {
			var count, unlogged int
			err := p.value(fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE relpersistence <> 'p') FROM pg_class"+
				" WHERE relnamespace = '%s'::regnamespace AND relname IN ('meta', 'names', 'holders')", strings.ReplaceAll(p.store.schema, "'", "''")), &count, &unlogged)
			if err == nil && count == 0 {
				err = errors.New("there are no tables")
			}
			return unlogged > 0, fmt.Sprintf("%d of %d tables are unlogged", unlogged, count), err
		}),
	diagnosis.NewProbe("postgres.standbys", store.LevelWarning,
		"replication is asynchronous: a failover may promote a standby that has not received a grant, and give the name to a second client",
		"set synchronous_standby_names, or check tokens at the resource",
		func(p *patient) (bool, string, error) {
			var standbys int
			err := p.value("SELECT count(*) FROM pg_stat_replication", &standbys)
			if err == nil && standbys == 0 {
				return false, "no standby is connected", nil
			}
			names, err2 := p.setting("synchronous_standby_names")
			return names == "", fmt.Sprintf("%d standbys, synchronous_standby_names %q", standbys, names), cmp.Or(err, err2)
		}),
	diagnosis.NewProbe("postgres.pooler", store.LevelWarning,
		"a pooler passes on no notifications, so waiters poll every 50 ms: a hand-off takes longer and costs statements; locks are as safe as without",
		"connect to the server itself, past the pooler",
		func(p *patient) (bool, string, error) {
			pooler, err := poolerAt(p.ctx, p.conn)
			return pooler, map[bool]string{true: "a pooler is in between", false: "no pooler is in between"}[pooler], err
		}),
	diagnosis.NewProbe("postgres.idle-timeout", store.LevelFailure,
		"the server closes the connections of the store between two calls; waiters are not woken, and a renewal may fail",
		"idle_session_timeout = 0 for the role of the locks, or at least a minute",
		func(p *patient) (bool, string, error) {
			ms, err := p.number("idle_session_timeout")
			limit := time.Duration(ms) * time.Millisecond
			return limit > 0 && limit < 2*p.store.heartbeat, fmt.Sprintf("idle_session_timeout %v", limit), err
		}),
	diagnosis.NewProbe("postgres.statement-timeout", store.LevelWarning,
		"calls that wait for the row of a contended name are cancelled, and renewals with them",
		"ALTER ROLE … SET statement_timeout = 0 for the role of the locks, or at least some seconds",
		func(p *patient) (bool, string, error) {
			ms, err := p.number("statement_timeout")
			limit := time.Duration(ms) * time.Millisecond
			return limit > 0 && limit < p.store.heartbeat, fmt.Sprintf("statement_timeout %v", limit), err
		}),
	diagnosis.NewProbe("postgres.keepalives", store.LevelWarning,
		"the server notices hours late that a client has died; until then its connection, and the rows that it has locked, are taken",
		"tcp_keepalives_idle = 60, tcp_keepalives_interval = 10, tcp_keepalives_count = 5",
		func(p *patient) (bool, string, error) {
			idle, err := p.number("tcp_keepalives_idle")
			if idle == 0 && err == nil {
				return false, "the connection is local", nil
			}
			return idle > mostIdle, fmt.Sprintf("tcp_keepalives_idle %d s", idle), err
		}),
	diagnosis.NewProbe("postgres.connections", store.LevelWarning,
		"when all connections are taken, a program that must connect again cannot renew its leases",
		"raise max_connections, or use a pooler for the other programs",
		func(p *patient) (bool, string, error) {
			limit, err := p.number("max_connections")
			var used int64
			err2 := p.value("SELECT sum(numbackends)::bigint FROM pg_stat_database", &used)
			return used*100 > limit*mostConnections, fmt.Sprintf("%d of %d connections", used, limit), cmp.Or(err, err2)
		}),
	diagnosis.NewProbe("postgres.old-snapshot", store.LevelWarning,
		"a transaction or a replication slot has an old snapshot, so the server keeps all versions of the rows since then; names that are locked often get slower by the minute",
		"end the transaction with the oldest backend_xmin in pg_stat_activity; keep the locks in a database of their own, apart from reports and dumps",
		func(p *patient) (bool, string, error) {
			var age int64
			err := p.value("SELECT coalesce(max(age(x)), 0)::bigint FROM (SELECT backend_xmin FROM pg_stat_activity WHERE coalesce(datname, current_database()) = current_database()"+
				" UNION ALL SELECT xmin FROM pg_replication_slots UNION ALL SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()) s(x)", &age)
			return age > mostAge, fmt.Sprintf("the oldest snapshot is %d transactions old", age), err
		}),
	diagnosis.NewProbe("postgres.notify-queue", store.LevelWarning,
		"a session that listens does not read its notifications; when the queue is full, releases that wake a waiter fail",
		"find the session that listens and is idle in transaction in pg_stat_activity, and end it",
		func(p *patient) (bool, string, error) {
			var usage float64
			err := p.value("SELECT pg_notification_queue_usage()", &usage)
			return usage > mostQueue, fmt.Sprintf("%.1f %% of the queue is used", usage*100), err
		}),
}
