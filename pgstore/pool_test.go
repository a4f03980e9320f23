package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// The application may set its own handler for notifications of its pool. The store still gets its
// notifications, and the handler does not get them.
func TestAHandlerForNotificationsOfThePoolDoesNotMatter(t *testing.T) {
	pool := poolWith(t, server(t).URL(), func(config *pgxpool.Config) {
		config.ConnConfig.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
			t.Errorf("the handler of the application got a notification on %s", n.Channel)
		}
	})
	s := newIn(t, pool)
	holder := request("handler")
	granted(t, s, holder)
	next := waitFor(s, queued(t, s, "handler"))
	release(t, s, holder)
	must(t, <-next)
}

// The application may decode JSON in its own way on its connections.
func TestACodecForJSONOfThePoolDoesNotMatter(t *testing.T) {
	pool := poolWith(t, server(t).URL(), func(config *pgxpool.Config) {
		config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			ignore := func([]byte, any) error { return nil }
			codec := &pgtype.JSONCodec{Marshal: json.Marshal, Unmarshal: ignore}
			conn.TypeMap().RegisterType(&pgtype.Type{Name: "json", OID: pgtype.JSONOID, Codec: codec})
			return nil
		}
	})
	s := newIn(t, pool)
	holder := request("codec")
	granted(t, s, holder)
	waiter := queued(t, s, "codec")
	page, err := s.List(t.Context(), store.Query{Name: "codec"})
	if err != nil || len(page.Locks) != 1 || len(page.Locks[0].Holders) != 1 || page.Locks[0].Holders[0].ID != holder.ID ||
		len(page.Locks[0].Waiters) != 1 || page.Locks[0].Waiters[0].ID != waiter.ID {
		t.Errorf("%+v, %v; want the holder %s and the waiter %s", page.Locks, err, holder.ID, waiter.ID)
	}
}

// With another client_encoding the server would convert names, so that one name could become two.
func TestAClientEncodingThatChangesNamesIsRefused(t *testing.T) {
	pool := poolWith(t, server(t).URL(), func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["client_encoding"] = "LATIN1"
	})
	s, err := pgstore.New(pool)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "client_encoding") {
		t.Errorf("New: %v, want ErrUnsupported that names client_encoding", err)
	}
}

// A server has 100 connections by default, three of them for administrators.
func TestSixteenClientsWithDefaultPoolsFitOnADefaultServer(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	p.Must("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app")
	url := strings.Replace(p.URL(), "postgres@", "app@", 1)
	var all []*pgstore.Store
	for range 16 {
		all = append(all, openStore(t, url))
	}
	granted(t, all[0], request("held"))
	for _, s := range all {
		queued(t, s, "held") // the client listens from here on
	}
	for _, s := range all {
		eventually(t, "a client cannot listen", func() bool { return pgstore.Pushed(s) })
	}
	config, _, err := pgstore.PoolConfig(url)
	must(t, err)
	end := inSession(t, p.URL(), "LOCK TABLE holdfast.names") // so that calls take long
	var wg sync.WaitGroup
	calls := 0
	eventually(t, "the clients use fewer connections", func() bool {
		calls++
		name := fmt.Sprint("name", calls)
		for _, s := range all {
			wg.Go(func() {
				_, err := s.Acquire(t.Context(), request(name))
				if err != nil && !strings.Contains(err.Error(), "another session") && !strings.Contains(err.Error(), "no reply in time") {
					t.Error(err)
				}
			})
		}
		return t.Failed() || number(t, p, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'") >= len(all)*(int(config.MaxConns)+1)
	})
	end()
	wg.Wait()
}

// An application may have settings for its own queries that make the server compile all statements, or
// use no index. That takes seconds on a busy machine.
func TestThePlansOfTheApplicationDoNotMatter(t *testing.T) {
	p := server(t)
	open(t, p.URL()) // creates the schema
	pairs := func(settings string) time.Duration {
		t.Log(settings)
		pool := poolWith(t, p.URL(), func(config *pgxpool.Config) {
			config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol)
				return err
			}
		})
		s := newIn(t, pool)
		begin := time.Now()
		for range 10 {
			r := request("n")
			r.Mode = store.Shared
			granted(t, s, r)
			release(t, s, r)
		}
		return time.Since(begin)
	}
	usual := pairs("SELECT 1")
	for _, settings := range []string{
		"SET jit_above_cost = 0",
		"SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off",
	} {
		if took := pairs(settings); took > 10*usual+2*time.Second { // it took 15 s
			t.Errorf("%s: ten pairs took %v instead of %v", settings, took, usual)
		}
	}
}

// The connections of a store are its own, so that an application that uses up its pool loses no lease.
func TestAnApplicationThatUsesUpItsPoolLosesNothing(t *testing.T) {
	p := server(t)
	pool := newPool(t, p.URL(), 2)
	s := newIn(t, pool)
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		must(t, err)
		defer conn.Release()
	}
	pair(t, s, "n")
	if n := pgstore.Pool(s).Config().MaxConns; n != 2 {
		t.Errorf("the store opens up to %d connections, want as many as the pool", n)
	}
}
