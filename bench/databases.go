package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
	_ "github.com/holdfast-lock/holdfast/mysqlstore"
	"github.com/holdfast-lock/holdfast/pgstore"
	_ "github.com/holdfast-lock/holdfast/sqlitestore"
)

// bareStatements is the raw limit of a database: statements that insert a row and delete it by its key.
const bareStatements = "two bare statements"

var sqliteFile = &system{
	name:  "SQLite",
	start: func(b *bench) string { return filepath.Join(b.t.TempDir(), "bench.db") },
	peers: []peer{
		ours("sqlite:%s"),
		{name: bareStatements, limit: true, open: func(path string) *locker {
			// The settings of the store, and a separate file, because the file of the store belongs to it.
			const pragmas = "?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=wal_autocheckpoint(4000)&_pragma=busy_timeout(5000)"
			db := must.Get(sql.Open("sqlite", "file:"+path+".bare"+pragmas))
			db.SetMaxOpenConns(1)
			return openBare(db, "CREATE TABLE IF NOT EXISTS bare (name TEXT PRIMARY KEY, id BLOB, until INTEGER) WITHOUT ROWID")
		}},
	},
}

// mariaDB is a server with its default, which flushes every commit to the disk. The commits of
// mariaDBWithoutFlushes show the cost of the statements themselves.
var (
	mariaDB               = mariaDBSystem("MariaDB", true)
	mariaDBWithoutFlushes = mariaDBSystem("MariaDB without flushes", false)
)

func mariaDBSystem(name string, durable bool) *system {
	return &system{
		name: name,
		start: func(b *bench) string {
			return servers.StartMariaDB(b.t, servers.MariaDBOptions{Durable: durable, Config: []string{"--max-connections=500"}}).Addr()
		},
		peers: []peer{
			ours(new(servers.MariaDB).URL("%s")),
			{name: bareStatements, limit: true, open: func(addr string) *locker {
				return openBare(openMySQL(addr), "CREATE TABLE IF NOT EXISTS bare (name VARBINARY(512) PRIMARY KEY, id BIGINT, until BIGINT) ENGINE=InnoDB")
			}},
			{name: "GET_LOCK", open: openGetLock},
		},
	}
}

func openMySQL(addr string) *sql.DB {
	db := must.Get(sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/%s", servers.MariaDBUser, servers.MariaDBPassword, addr, servers.MariaDBDatabase)))
	db.SetMaxIdleConns(100) // so that no connection is opened during a measurement
	return db
}

// openGetLock is the server's own function GET_LOCK, with one connection per lock.
func openGetLock(addr string) *locker {
	db := openMySQL(addr)
	return &locker{close: func() { db.Close() }, lock: func(ctx context.Context, name string) (held, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return nil, err
		}
		var got sql.NullInt64
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+name+"', 60)").Scan(&got)
		if err == nil && got.Int64 != 1 {
			err = errors.New("GET_LOCK did not get the lock")
		}
		if err != nil {
			conn.Close()
		}
		return unlocker(func(ctx context.Context) error {
			return errors.Join(errOf(conn.ExecContext(ctx, "DO RELEASE_LOCK('"+name+"')")), conn.Close())
		}), err
	}}
}

func openBare(db *sql.DB, schema string) *locker {
	must.Get(db.Exec(schema))
	put, take := must.Get(db.Prepare("INSERT INTO bare VALUES (?, ?, ?)")), must.Get(db.Prepare("DELETE FROM bare WHERE name = ? AND id = ?"))
	var n atomic.Int64
	return &locker{close: func() { db.Close() }, lock: func(ctx context.Context, name string) (held, error) {
		id := n.Add(1)
		_, err := put.ExecContext(ctx, name, id, time.Now().Add(ttl).UnixNano())
		return unlocker(func(ctx context.Context) error { return errOf(take.ExecContext(ctx, name, id)) }), err
	}}
}

// postgres is a server that waits for its disk, as in production.
var postgres = &system{
	name: "PostgreSQL",
	start: func(b *bench) string {
		return servers.StartPostgres(b.t, servers.PostgresOptions{Config: []string{"max_connections=600"}}).Addr()
	},
	peers: []peer{
		ours(servers.PostgresURL("%s")),
		{name: bareStatements, open: openBarePostgres, limit: true},
		{name: "pg_advisory_lock", open: openAdvisory},
	},
}

func openPool(addr string) *pgxpool.Pool {
	config := must.Get(pgxpool.ParseConfig(servers.PostgresURL(addr)))
	config.MaxConns = 16 // more are not faster on a small machine
	return must.Get(pgxpool.NewWithConfig(context.Background(), config))
}

func openBarePostgres(addr string) *locker {
	pool := openPool(addr)
	must.Get(pool.Exec(context.Background(), "CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, id bigint, until timestamptz)"))
	var n atomic.Int64
	return &locker{close: pool.Close, lock: func(ctx context.Context, name string) (held, error) {
		id := n.Add(1)
		err := errOf(pool.Exec(ctx, "INSERT INTO bare VALUES ($1, $2, $3)", name, id, time.Now().Add(ttl)))
		return unlocker(func(ctx context.Context) error {
			return errOf(pool.Exec(ctx, "DELETE FROM bare WHERE name = $1 AND id = $2", name, id))
		}), err
	}}
}

// openAdvisory is an advisory lock of a session, with a connection for each holder and waiter.
func openAdvisory(addr string) *locker {
	pool := openPool(addr)
	return &locker{close: pool.Close, lock: func(ctx context.Context, name string) (held, error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		key := pgstore.TxKey(name)
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
			conn.Release()
			return nil, err
		}
		return unlocker(func(ctx context.Context) error {
			defer conn.Release()
			return errOf(conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", key))
		}), nil
	}}
}
