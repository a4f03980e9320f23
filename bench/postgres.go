package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// onPostgres is the suffix of the names of candidates on PostgreSQL. One candidate inserts a row
// and deletes it. Another one is an advisory lock of a session, which needs a connection for each
// holder and waiter.
const onPostgres = " on PostgreSQL"

var (
	postgresUs       = peer{name: us + onPostgres, open: openHoldfastOnPostgres}
	postgresBare     = peer{name: "two bare statements" + onPostgres, open: openBarePostgres}
	postgresAdvisory = peer{name: "pg_advisory_lock" + onPostgres, open: openAdvisory}

	postgresPeers = []peer{postgresBare, postgresAdvisory, postgresUs}
)

// peerConns is how many connections the other candidates have. More are not faster on a small
// machine.
const peerConns = 16

func openHoldfastOnPostgres(addr string) (locker, error) {
	c, err := holdfast.Open(context.Background(), servers.PostgresURL(addr))
	if err != nil {
		return nil, err
	}
	return holdfastLocker{c}, nil
}

// postgresStore is the store without the client in front of it.
type postgresStore struct{ store.Store }

type postgresGrant struct {
	s    store.Store
	name string
	id   store.ID
}

func (l postgresStore) Lock(ctx context.Context, name string) (held, error) {
	req := store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: ttl, Tokens: 1, Owner: "bench"}
	answer, err := l.Acquire(ctx, req)
	if err == nil && !answer.Granted() {
		err = fmt.Errorf("%q is refused", name)
	}
	return &postgresGrant{l.Store, name, req.ID}, err
}

func (g *postgresGrant) Unlock(ctx context.Context) error {
	return g.s.Release(ctx, g.name, g.id, store.Keep{})
}

func openPool(addr string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(servers.PostgresURL(addr))
	if err != nil {
		return nil, err
	}
	config.MaxConns = peerConns
	return pgxpool.NewWithConfig(context.Background(), config)
}

type barePostgres struct {
	pool *pgxpool.Pool
	n    atomic.Int64
}

type barePostgresHeld struct {
	l    *barePostgres
	name string
	id   int64
}

func openBarePostgres(addr string) (locker, error) {
	pool, err := openPool(addr)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(context.Background(), "CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, id bigint, until timestamptz)")
	return &barePostgres{pool: pool}, err
}

func (l *barePostgres) Lock(ctx context.Context, name string) (held, error) {
	h := &barePostgresHeld{l, name, l.n.Add(1)}
	_, err := l.pool.Exec(ctx, "INSERT INTO bare VALUES ($1, $2, $3)", name, h.id, time.Now().Add(ttl))
	return h, err
}

func (h *barePostgresHeld) Unlock(ctx context.Context) error {
	_, err := h.l.pool.Exec(ctx, "DELETE FROM bare WHERE name = $1 AND id = $2", h.name, h.id)
	return err
}

func (l *barePostgres) Close() error {
	l.pool.Close()
	return nil
}

type advisoryLocker struct{ pool *pgxpool.Pool }

type advisoryHeld struct {
	conn *pgxpool.Conn
	key  int64
}

func openAdvisory(addr string) (locker, error) {
	pool, err := openPool(addr)
	if err != nil {
		return nil, err
	}
	return advisoryLocker{pool}, nil
}

func (l advisoryLocker) Lock(ctx context.Context, name string) (held, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	key := pgstore.TxKey(name)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		conn.Release()
		return nil, err
	}
	return &advisoryHeld{conn, key}, nil
}

func (h *advisoryHeld) Unlock(ctx context.Context) error {
	defer h.conn.Release()
	_, err := h.conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", h.key)
	return err
}

func (l advisoryLocker) Close() error {
	l.pool.Close()
	return nil
}

// startPostgres starts a server that waits for its disk, as in production.
func (b *bench) startPostgres() string {
	return servers.StartPostgres(b.t, servers.PostgresOptions{Config: []string{"max_connections=600"}}).Addr()
}

// postgresShapes measures P4 for PostgreSQL: goroutines on one name, spread over clients in several
// ways.
func (b *bench) postgresShapes(ctx context.Context) error {
	return b.shapes(ctx, postgresUs, b.startPostgres(), 0.7)
}

// postgres measures P10 for PostgreSQL.
func (b *bench) postgres(ctx context.Context) error {
	addr := b.startPostgres()
	const direct = "through the store"
	for _, goroutines := range []int{1, b.goroutines} {
		var all []candidate
		for _, p := range postgresPeers {
			l, err := p.open(addr)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			defer l.Close()
			all = append(all, candidate{name: p.name, l: l, prefix: "own"})
		}
		s, err := store.Open(ctx, servers.PostgresURL(addr))
		if err != nil {
			return err
		}
		defer s.Close()
		all = append(all, candidate{name: direct, l: postgresStore{s}, prefix: "own"})
		rates, err := interleavePairs(ctx, b, goroutines, all)
		if err != nil {
			return err
		}
		work := "PostgreSQL, " + ownNamesOf(goroutines)
		for _, c := range all {
			b.add(work, strings.TrimSuffix(c.name, onPostgres), pairs, rates[c.name], nil)
		}
		least := 0.8
		if goroutines > 1 {
			least = 1
		}
		b.add(work, us+" / two bare statements", "×", ratios(rates[postgresUs.name], rates[postgresBare.name]), atLeast(least))
		b.add(work, us+" / pg_advisory_lock", "×", ratios(rates[postgresUs.name], rates[postgresAdvisory.name]), nil)
	}
	return b.postgresHandOff(ctx, addr)
}

func (b *bench) postgresHandOff(ctx context.Context, addr string) error {
	var turns []turn[[]float64]
	for _, p := range []peer{postgresUs, postgresAdvisory} {
		pass, err := newPasser(ctx, p, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer pass.close()
		turns = append(turns, turn[[]float64]{p.name, func() ([]float64, error) { return pass.times(ctx, b.handoffs/2) }, p.name != postgresUs.name})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	const work = "PostgreSQL, hand-off between processes"
	for _, t := range turns {
		var most *target
		if t.name == postgresUs.name {
			most = atMost(5000)
		}
		b.add(work, strings.TrimSuffix(t.name, onPostgres)+": p50", "µs", column(found[t.name], median), most)
	}
	return nil
}
