package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	_ "github.com/holdfast-lock/holdfast/mysqlstore"
	"github.com/holdfast-lock/holdfast/store"
)

// mysqlPeer is Holdfast on MariaDB. Its address is a data source name in the driver's format.
var mysqlPeer = peer{name: "holdfast on MariaDB", open: func(dsn string) (locker, error) {
	url, err := mysqlURL(dsn)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.Open(context.Background(), url)
	return &mysqlLocker{c}, err
}}

// getLockPeer is the server's own function GET_LOCK, with one connection per lock.
var getLockPeer = peer{name: "GET_LOCK", open: func(dsn string) (locker, error) {
	db, err := openMySQL(dsn)
	return &getLock{db}, err
}}

var mysqlPeers = []peer{mysqlPeer, getLockPeer}

func openMySQL(dsn string) (*sql.DB, error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(100) // so that no connection is opened during a measurement
	return db, nil
}

// mysqlURL returns the URL of the store in the database of a data source name.
func mysqlURL(dsn string) (string, error) {
	c, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("mysql://%s:%s@%s/%s", c.User, c.Passwd, c.Addr, c.DBName), nil
}

func openMySQLStore(dsn string) (locker, error) {
	url, err := mysqlURL(dsn)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(context.Background(), url)
	return mysqlStoreOnly{s}, err
}

type mysqlLocker struct{ *holdfast.Client }

func (l *mysqlLocker) Lock(ctx context.Context, name string) (held, error) {
	return l.Client.Lock(ctx, name)
}

// mysqlStoreOnly is the store without the client in front of it.
type mysqlStoreOnly struct{ store.Store }

type mysqlGrant struct {
	s    store.Store
	name string
	id   store.ID
}

func (l mysqlStoreOnly) Lock(ctx context.Context, name string) (held, error) {
	req := store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: ttl, Tokens: 1, Owner: "bench"}
	answer, err := l.Acquire(ctx, req)
	if err == nil && !answer.Granted() {
		err = fmt.Errorf("%q is refused", name)
	}
	return &mysqlGrant{l.Store, name, req.ID}, err
}

func (g *mysqlGrant) Unlock(ctx context.Context) error {
	return g.s.Release(ctx, g.name, g.id, store.Keep{})
}

type getLock struct{ db *sql.DB }

type getLockHeld struct {
	conn *sql.Conn
	name string
}

func (l *getLock) Lock(ctx context.Context, name string) (held, error) {
	conn, err := l.db.Conn(ctx)
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
		return nil, err
	}
	return &getLockHeld{conn, name}, nil
}

func (h *getLockHeld) Unlock(ctx context.Context) error {
	_, err := h.conn.ExecContext(ctx, "DO RELEASE_LOCK('"+h.name+"')")
	return errors.Join(err, h.conn.Close())
}

func (l *getLock) Close() error { return l.db.Close() }

// bareMySQL is the raw limit: prepared statements that insert and delete a row by its primary key.
type bareMySQL struct {
	db        *sql.DB
	put, take *sql.Stmt
	n         atomic.Int64
}

type bareMySQLHeld struct {
	l    *bareMySQL
	name string
	id   int64
}

func openBareMySQL(dsn string) (*bareMySQL, error) {
	db, err := openMySQL(dsn)
	if err != nil {
		return nil, err
	}
	l := &bareMySQL{db: db}
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS bare (name VARBINARY(512) PRIMARY KEY, id BIGINT, until BIGINT) ENGINE=InnoDB"); err != nil {
		return l, err
	}
	if l.put, err = db.Prepare("INSERT INTO bare VALUES (?, ?, ?)"); err != nil {
		return l, err
	}
	l.take, err = db.Prepare("DELETE FROM bare WHERE name = ? AND id = ?")
	return l, err
}

func (l *bareMySQL) Lock(ctx context.Context, name string) (held, error) {
	h := &bareMySQLHeld{l, name, l.n.Add(1)}
	_, err := l.put.ExecContext(ctx, name, h.id, time.Now().Add(ttl).UnixNano())
	return h, err
}

func (h *bareMySQLHeld) Unlock(ctx context.Context) error {
	_, err := h.l.take.ExecContext(ctx, h.name, h.id)
	return err
}

func (l *bareMySQL) Close() error { return l.db.Close() }

// mysql measures P10 for MySQL, on MariaDB. It measures the default, which flushes every
// commit to the disk, and commits without flushing, which show the cost of the statements
// themselves.
func (b *bench) mysql(ctx context.Context) error {
	for _, durable := range []bool{true, false} {
		server := servers.StartMariaDB(b.t, servers.MariaDBOptions{Durable: durable, Config: []string{"--max-connections=500"}})
		work := "MariaDB"
		if !durable {
			work += " without flushes"
		}
		if err := b.mysqlOwnNames(ctx, work, server.DSN()); err != nil {
			return err
		}
		if err := b.mysqlHandOff(ctx, work, server.DSN()); err != nil {
			return err
		}
		server.Shutdown()
	}
	return nil
}

func (b *bench) mysqlOwnNames(ctx context.Context, work, dsn string) error {
	const client, store, bare, getLock = "through the client", "through the store", "two bare statements", "GET_LOCK and RELEASE_LOCK"
	lockers := make(map[string]locker)
	for name, open := range map[string]func() (locker, error){
		client:  func() (locker, error) { return mysqlPeer.open(dsn) },
		store:   func() (locker, error) { return openMySQLStore(dsn) },
		bare:    func() (locker, error) { return openBareMySQL(dsn) },
		getLock: func() (locker, error) { return getLockPeer.open(dsn) },
	} {
		l, err := open()
		if err != nil {
			return err
		}
		defer l.Close()
		lockers[name] = l
	}
	for _, goroutines := range []int{1, b.goroutines} {
		var all []candidate
		for _, name := range []string{bare, store, client, getLock} {
			all = append(all, candidate{name: name, l: lockers[name], prefix: strings.ReplaceAll(name, " ", "-"), mayFail: name == getLock})
		}
		rates, err := interleavePairs(ctx, b, goroutines, all)
		if err != nil {
			return err
		}
		work := work + ", " + ownNamesOf(goroutines)
		for _, c := range all {
			b.add(work, c.name, pairs, rates[c.name], nil)
		}
		least := 0.8
		if goroutines > 1 {
			least = 1
		}
		b.add(work, "store / bare", "×", ratios(rates[store], rates[bare]), atLeast(least))
		b.add(work, "client / bare", "×", ratios(rates[client], rates[bare]), atLeast(least))
		b.add(work, "client / GET_LOCK", "×", ratios(rates[client], rates[getLock]), nil)
	}
	return nil
}

func (b *bench) mysqlHandOff(ctx context.Context, work, dsn string) error {
	var turns []turn[[]float64]
	for _, p := range mysqlPeers {
		pass, err := newPasser(ctx, p, dsn)
		if err != nil {
			return err
		}
		defer pass.close()
		turns = append(turns, turn[[]float64]{p.name, func() ([]float64, error) { return pass.times(ctx, b.handoffs/2) }, p.name != mysqlPeer.name})
	}
	times, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	for _, p := range mysqlPeers {
		b.add(work+", hand-off between processes", p.name+": p50", "µs", column(times[p.name], median), nil)
		b.add(work+", hand-off between processes", p.name+": p99", "µs", column(times[p.name], func(times []float64) float64 { return quantile(times, 0.99) }), nil)
	}
	return nil
}

// mysqlShapes measures P4 on MariaDB.
func (b *bench) mysqlShapes(ctx context.Context) error {
	server := servers.StartMariaDB(b.t, servers.MariaDBOptions{Config: []string{"--max-connections=500"}})
	return b.shapes(ctx, mysqlPeer, server.DSN(), 0)
}
