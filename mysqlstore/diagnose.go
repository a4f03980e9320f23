package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

var _ store.Diagnoser = (*Store)(nil)

// Diagnose checks whether the server is set up safely for locks with that TTL: see [store.Diagnoser]. It
// reads variables, the status and information_schema, which every user of the tables may read.
func (s *Store) Diagnose(ctx context.Context, ttl time.Duration) (findings []store.Finding) {
	fail := func(err error) []store.Finding {
		return []store.Finding{readOnlyCheck.Unknown(s.explain(ctx, err))}
	}
	if err := s.life.Usable(ctx); err != nil {
		return fail(err)
	}
	err := s.gives.use(ctx, func(ctx context.Context, c *conn) error {
		p := &patient{ctx: ctx, conn: c, store: s}
		var err error
		if p.vars, err = p.pairs("SHOW VARIABLES"); err != nil {
			return err
		}
		if p.status, err = p.pairs("SHOW GLOBAL STATUS"); err != nil {
			return err
		}
		findings = diagnosis.Run("", p, probes)
		clock, _, _ := diagnosis.Clock(ttl, p.clock)
		findings = append(findings, p.identity(), clock)
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return findings
}

// A patient is the server to check, through a connection of the store.
type patient struct {
	ctx          context.Context
	conn         *conn
	store        *Store
	vars, status map[string]string // by their names in lower case
}

// pairs reads rows that consist of a name and a value.
func (p *patient) pairs(query string) (map[string]string, error) {
	all := make(map[string]string)
	var name string
	var value sql.NullString
	err := p.conn.query(p.ctx, query, func() { all[strings.ToLower(name)] = value.String }, &name, &value)
	return all, err
}

// variable returns a variable of the session, or of the server if the session has none of its own.
func (p *patient) variable(name string) (string, error) {
	value, ok := p.vars[name]
	if !ok {
		return "", fmt.Errorf("the server has no variable %s", name)
	}
	return value, nil
}

// count returns a number from the status of the server. MySQL may show none of the replication.
func (p *patient) count(name string) (int, error) {
	value, ok := p.status[name]
	if !ok {
		return 0, diagnosis.ErrNotApplicable
	}
	return strconv.Atoi(value)
}

func (p *patient) clock() (time.Time, error) {
	var micros int64
	err := p.conn.QueryRowContext(p.ctx, "SELECT "+nowSQL).Scan(&micros)
	return time.UnixMicro(micros), err
}

// identity returns a text that is the same for all clients of the same tables.
func (p *patient) identity() store.Finding {
	server := cmp.Or(p.vars["server_uuid"], p.vars["server_uid"]) // the first is in MySQL, the second in newer versions of MariaDB
	if server == "" {
		server = fmt.Sprintf("%s:%s in %s", p.vars["hostname"], p.vars["port"], p.vars["datadir"])
	}
	return diagnosis.Identify("server %s, database %s, tables %s…", server, p.store.database, p.store.prefix)
}

// isOn returns the variables that are on.
func (p *patient) isOn(names ...string) (on []string) {
	for _, name := range names {
		if value := p.vars[name]; value == "ON" || value == "1" {
			on = append(on, name)
		}
	}
	return on
}

var readOnlyCheck = diagnosis.New("mysql.read-only", store.LevelFailure,
	"the server refuses writes, so no lock can be taken",
	"connect to the primary; SET GLOBAL read_only = OFF if this is the primary")

var probes = []diagnosis.Probe[*patient]{
	{Check: readOnlyCheck, Look: func(p *patient) (bool, string, error) {
		on := p.isOn("read_only", "super_read_only", "innodb_read_only", "tx_read_only", "transaction_read_only")
		if len(on) > 0 {
			return true, strings.Join(on, ", ") + " is on", nil
		}
		_, err := p.variable("read_only")
		return false, "the server accepts writes", err
	}},
	diagnosis.NewProbe("mysql.session", store.LevelFailure,
		"a proxy shares sessions between clients: a transaction of the store may be split over sessions, and two clients may hold one name",
		"connect to the server itself, or turn off multiplexing at the proxy",
		(*patient).changesSessions),
	diagnosis.NewProbe("mysql.wait-timeout", store.LevelFailure,
		"the server closes the connections of the store between two calls, so that renewals may fail",
		"the store sets wait_timeout for its own sessions; keep a proxy from changing it",
		func(p *patient) (bool, string, error) {
			value, err := p.variable("wait_timeout")
			seconds, err2 := strconv.Atoi(value)
			return time.Duration(seconds)*time.Second < clientIdle, "wait_timeout " + value + " in the session of the store", cmp.Or(err, err2)
		}),
	diagnosis.NewProbe("mysql.flush", store.LevelFailure,
		"a grant is confirmed before it is on disk; a power cut loses it, and the name is given to another client",
		"innodb_flush_log_at_trx_commit = 1",
		func(p *patient) (bool, string, error) {
			value, err := p.variable("innodb_flush_log_at_trx_commit")
			return value != "1", "innodb_flush_log_at_trx_commit " + value, err
		}),
	diagnosis.NewProbe("mysql.sync-binlog", store.LevelFailure,
		"after a power cut replicas lack the newest grants, or have some that the server has lost",
		"sync_binlog = 1",
		func(p *patient) (bool, string, error) {
			if len(p.isOn("log_bin")) == 0 {
				return false, "", diagnosis.ErrNotApplicable
			}
			value, err := p.variable("sync_binlog")
			return value != "1", "sync_binlog " + value, err
		}),
	diagnosis.NewProbe("mysql.engine", store.LevelFailure,
		"other engines have no transactions and lose rows in a crash: two clients may hold one name",
		"ALTER TABLE … ENGINE = InnoDB for all tables of the locks",
		(*patient).otherEngines),
	diagnosis.NewProbe("mysql.replica", store.LevelWarning,
		"the server is a replica: the primary does not have the locks that are taken here, and programs that connect to the primary may hold them too",
		"let all programs that lock connect to the primary, and set read_only = ON at its replicas",
		func(p *patient) (bool, string, error) {
			running, err := p.count("slaves_running")
			return running > 0, map[bool]string{true: "it copies another server", false: "it copies no other server"}[running > 0], err
		}),
	diagnosis.NewProbe("mysql.replication", store.LevelWarning,
		"a replica may lack the newest grants: if it becomes the primary, two clients may hold one name for up to a TTL",
		"rpl_semi_sync_master_enabled = ON, rpl_semi_sync_master_wait_point = AFTER_SYNC and a long rpl_semi_sync_master_timeout, with rpl_semi_sync_slave_enabled = ON at the replicas; or check tokens where locks matter",
		func(p *patient) (bool, string, error) {
			replicas, err := p.count("slaves_connected")
			if err != nil || replicas == 0 {
				return false, "no replica is connected", err
			}
			if status := p.status["rpl_semi_sync_master_status"]; status != "ON" {
				return true, "commits do not wait for a replica", nil
			}
			point := p.vars["rpl_semi_sync_master_wait_point"]
			return point != "AFTER_SYNC", "commits wait for a replica, " + point, nil
		}),
	diagnosis.NewProbe("mysql.several-primaries", store.LevelWarning,
		"programs that write to different members do not wait for each other's rows: commits fail as deadlocks, and waiters are not served in order",
		"let all programs that lock use one member; group_replication_single_primary_mode = ON",
		func(p *patient) (bool, string, error) {
			if len(p.isOn("wsrep_on")) > 0 {
				return true, fmt.Sprintf("a Galera cluster of %s members", cmp.Or(p.status["wsrep_cluster_size"], "?")), nil
			}
			if mode, ok := p.vars["group_replication_single_primary_mode"]; ok && mode == "OFF" && p.vars["group_replication_group_name"] != "" {
				return true, "group replication with several primaries", nil
			}
			return false, "one server accepts writes", nil
		}),
}

// changesSessions reports whether several transactions on one connection have different connection IDs.
func (p *patient) changesSessions() (bool, string, error) {
	var ids []string
	for range 5 {
		var id string
		tx, err := p.conn.BeginTx(p.ctx, nil)
		if err == nil {
			err = errors.Join(tx.QueryRow("SELECT CONNECTION_ID()").Scan(&id), tx.Rollback())
		}
		if err != nil {
			return false, "", err
		}
		ids = append(ids, id)
	}
	ids = slices.Compact(ids)
	return len(ids) > 1, "connection ID " + strings.Join(ids, ", then "), nil
}

// otherEngines reports tables with an engine other than InnoDB.
func (p *patient) otherEngines() (bool, string, error) {
	prefix := p.store.prefix
	names := []string{prefix + "names", prefix + "claims", prefix + "meta"}
	engines, err := p.pairs(fmt.Sprintf("SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name IN ('%s')",
		strings.Join(names, "', '")))
	if err != nil {
		return false, "", err
	}
	var others []string
	for _, name := range names {
		switch engine, ok := engines[strings.ToLower(name)]; {
		case !ok:
			return false, "", fmt.Errorf("information_schema does not show the table %s", name)
		case engine != "InnoDB":
			others = append(others, name+" "+engine)
		}
	}
	return len(others) > 0, cmp.Or(strings.Join(others, ", "), "all tables are InnoDB"), nil
}
