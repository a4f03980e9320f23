package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// sqlitePeer is Holdfast on a file.
var sqlitePeer = peer{name: "holdfast on SQLite", open: func(path string) (locker, error) {
	s, err := sqlitestore.Open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.New(s)
	return &sqliteLocker{c, s}, err
}}

type sqliteLocker struct {
	*holdfast.Client
	store *sqlitestore.Store
}

func (l *sqliteLocker) Lock(ctx context.Context, name string) (held, error) {
	return l.Client.Lock(ctx, name)
}

func (l *sqliteLocker) Close() error {
	err := l.Client.Close()
	l.store.Close()
	return err
}

// A sqliteStore is the store without a client in front of it.
type sqliteStore struct{ *sqlitestore.Store }

type sqliteGrant struct {
	s    *sqlitestore.Store
	name string
	id   store.ID
}

func (l sqliteStore) Lock(ctx context.Context, name string) (held, error) {
	req := store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: ttl, Tokens: 1, Owner: "bench"}
	answer, err := l.Acquire(ctx, req)
	if err == nil && !answer.Granted() {
		err = fmt.Errorf("%q is refused", name)
	}
	return &sqliteGrant{l.Store, name, req.ID}, err
}

func (g *sqliteGrant) Unlock(ctx context.Context) error {
	return g.s.Release(ctx, g.name, g.id, store.Keep{})
}

// bareSQLite is the raw limit: one row inserted and deleted by its primary key, with the settings
// of the store.
type bareSQLite struct {
	db        *sql.DB
	put, take *sql.Stmt
	n         atomic.Int64
}

type bareHeld struct {
	l    *bareSQLite
	name string
	id   int64
}

const barePragmas = "?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=wal_autocheckpoint(4000)&_pragma=busy_timeout(5000)"

func openBareSQLite(path string) (*bareSQLite, error) {
	db, err := sql.Open("sqlite", "file:"+path+barePragmas)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	l := &bareSQLite{db: db}
	if _, err := db.Exec("CREATE TABLE bare (name TEXT PRIMARY KEY, id BLOB, until INTEGER) WITHOUT ROWID"); err != nil {
		return l, err
	}
	if l.put, err = db.Prepare("INSERT INTO bare VALUES (?, ?, ?)"); err != nil {
		return l, err
	}
	l.take, err = db.Prepare("DELETE FROM bare WHERE name = ? AND id = ?")
	return l, err
}

func (l *bareSQLite) Lock(ctx context.Context, name string) (held, error) {
	h := &bareHeld{l, name, l.n.Add(1)}
	_, err := l.put.ExecContext(ctx, name, h.id, time.Now().Add(ttl).UnixNano())
	return h, err
}

func (h *bareHeld) Unlock(ctx context.Context) error {
	_, err := h.l.take.ExecContext(ctx, h.name, h.id)
	return err
}

func (l *bareSQLite) Close() error { return l.db.Close() }

// sqlite measures P10 for SQLite.
func (b *bench) sqlite(ctx context.Context) error {
	dir := b.t.TempDir()
	const client, store, bare = "through the client", "through the store", "two bare statements"
	c, err := sqlitePeer.open(filepath.Join(dir, "client.db"))
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := sqlitestore.Open(ctx, filepath.Join(dir, "store.db"))
	if err != nil {
		return err
	}
	defer s.Close()
	plain, err := openBareSQLite(filepath.Join(dir, "bare.db"))
	if err != nil {
		return err
	}
	defer plain.Close()
	for _, goroutines := range []int{1, b.goroutines} {
		all := []candidate{{name: bare, l: plain, prefix: "own"}, {name: store, l: sqliteStore{s}, prefix: "own"}, {name: client, l: c, prefix: "own"}}
		rates, err := interleavePairs(ctx, b, goroutines, all)
		if err != nil {
			return err
		}
		work := "SQLite, " + ownNamesOf(goroutines)
		for _, c := range all {
			b.add(work, c.name, pairs, rates[c.name], nil)
		}
		b.add(work, "store / bare", "×", ratios(rates[store], rates[bare]), atLeast(0.8))
		b.add(work, "client / bare", "×", ratios(rates[client], rates[bare]), atLeast(0.8))
	}

	pass, err := newPasser(ctx, sqlitePeer, filepath.Join(dir, "handoff.db"))
	if err != nil {
		return err
	}
	defer pass.close()
	times, err := interleave(ctx, b, []turn[[]float64]{{us, func() ([]float64, error) { return pass.times(ctx, b.handoffs/2) }, false}})
	if err != nil {
		return err
	}
	b.add("SQLite, hand-off between processes", us+": p50", "µs", column(times[us], median), nil)
	return nil
}
