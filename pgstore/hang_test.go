package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestCallsEndWithTheirContextsOnAHungServer(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	suites.HungServer(t, openStore(t, p.URL()), openStore(t, p.URL()), func() (goOn func()) {
		p.Stop()
		return p.Continue
	})
}

func TestEveryCallEndsInTime(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	held := request("held")
	check := func(t *testing.T, s *pgstore.Store) {
		t.Helper()
		suites.EndInTime(t, s, held)
		eventually(t, "the batches have ended too", func() bool { return pgstore.InFlight(s) == 0 })
	}
	for what, open := range map[string]func(t *testing.T) *pgstore.Store{
		"hung": func(t *testing.T) *pgstore.Store {
			s := openStore(t, p.URL())
			granted(t, s, held)
			return s
		},
		"hung before the first call": func(t *testing.T) *pgstore.Store { return openStore(t, p.URL()) },
		"hung, and connecting has a shorter limit": func(t *testing.T) *pgstore.Store {
			return openStore(t, p.URL()+"&connect_timeout=1")
		},
		// An application may let its pool wait for the server after the end of a context, to cancel the
		// statement and keep the connection. A server that hangs does not answer that either.
		"hung, and the pool is slow to cancel": func(t *testing.T) *pgstore.Store {
			return newIn(t, poolWith(t, p.URL(), func(config *pgxpool.Config) {
				config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
					return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: 15 * time.Second}
				}
			}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := open(t)
			p.Stop()
			defer p.Continue()
			check(t, s)
		})
	}
	t.Run("a dialer that does not look at its context", func(t *testing.T) {
		hangs := make(chan struct{})
		var hung atomic.Bool
		s := newIn(t, poolWith(t, p.URL(), func(config *pgxpool.Config) {
			config.ConnConfig.DialFunc = func(_ context.Context, network, addr string) (net.Conn, error) {
				if hung.Load() {
					<-hangs
				}
				return net.Dial(network, addr)
			}
		}))
		hung.Store(true)
		release := sync.OnceFunc(func() { close(hangs) })
		defer release()
		defer time.AfterFunc(time.Minute, release).Stop() // if Close hangs
		pgstore.Pool(s).Reset()
		s.Acquire(t.Context(), suites.Queued("waits")) // so that the store connects to listen
		check(t, s)
		begin := time.Now()
		if s.Close(); time.Since(begin) > 5*time.Second {
			t.Errorf("Close took %v", time.Since(begin))
		}
	})
}

func TestOpenEndsWithItsContextIfTheServerHangs(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	proxy := faultproxy.Start(t, p.Addr())
	proxy.HoldRepliesAfter(func(request []byte) bool { return bytes.Contains(request, []byte("pg_backend_pid")) })
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := holdfast.Open(ctx, strings.Replace(p.URL(), p.Addr(), proxy.Addr(), 1))
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
		t.Errorf("Open returned after %v: %v", took, err)
	}
}

func TestCloseEndsADiagnosisOfAHungServer(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	s := openStore(t, p.URL())
	p.Stop()
	defer p.Continue()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Diagnose(context.Background(), time.Minute)
	}()
	select {
	case <-ended:
		t.Fatal("the diagnosis ended although the server hangs")
	case <-time.After(200 * time.Millisecond):
	}
	s.Close()
	select {
	case <-ended:
	default:
		t.Error("the diagnosis did not end with the store")
	}
}

// fill opens all connections of a store.
func fill(t *testing.T, s *pgstore.Store) {
	t.Helper()
	pool := pgstore.Pool(s)
	var conns []*pgxpool.Conn
	for range pool.Stat().MaxConns() {
		conn, err := pool.Acquire(t.Context())
		must(t, err)
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
}

// The network drops the packets of connections that were idle, and new connections work: there was a
// failover, or a firewall forgot them. The pool tests such connections before it uses them. It has a
// limit for a test, and does not wait for the server to end them.
func TestCallsWorkAgainAfterIdleConnectionsHaveDied(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	const idle, limit = 4, 10 * time.Second // all of the pool
	proxy := faultproxy.Start(t, p.Addr())
	var direct atomic.Bool
	s := newIn(t, poolWith(t, p.URL(), func(config *pgxpool.Config) {
		config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
		config.ConnConfig.DialFunc = through(proxy, &direct)
	}))
	pool := pgstore.Pool(s)
	fill(t, s)
	eventually(t, "idle connections", func() bool { return int(pool.Stat().IdleConns()) == idle })
	proxy.ToServer.Hold()
	direct.Store(true)
	defer proxy.Heal()
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range idle { // all tests at once
		wg.Go(func() { s.Acquire(t.Context(), request(strconv.Itoa(i))) })
	}
	wg.Wait()
	suites.WorksBy(t, s, begin.Add(limit))
}

// A connection that begins while the network drops packets never gets a reply, even after that: there
// was a failover, or a proxy waits for a server that is gone. Such connections must not take the room of
// others for long.
func TestCallsWorkAgainAfterConnectingHasHung(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Second
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	proxy := faultproxy.Start(t, p.Addr())
	s := newIn(t, newPool(t, strings.Replace(p.URL(), p.Addr(), proxy.Addr(), 1), 4))
	pool := pgstore.Pool(s)
	pool.Reset()
	eventually(t, "connections are open", func() bool { return pool.Stat().TotalConns() == 0 })
	proxy.Drop()
	var wg sync.WaitGroup
	eventually(t, "the store does not connect", func() bool {
		wg.Go(func() { s.Acquire(t.Context(), request("during")) })
		return pool.Stat().ConstructingConns() == pool.Stat().MaxConns()
	})
	proxy.Heal()
	wg.Wait()
	suites.WorksBy(t, s, time.Now().Add(limit))
}

// The first host hangs without closing its connections, and there is a new primary at the second host.
// The pool must not wait for the first one to cancel statements.
func TestCallsMoveToTheNextHostIfTheFirstOneHangs(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Second
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	proxy := faultproxy.Start(t, p.Addr())
	s := openStore(t, strings.Replace(p.URL(), p.Addr(), proxy.Addr()+","+p.Addr(), 1))
	fill(t, s)
	proxy.Hold()
	defer proxy.Heal()
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { s.Acquire(t.Context(), request(strconv.Itoa(i))) })
	}
	wg.Wait()
	suites.WorksBy(t, s, begin.Add(limit))
}

// The application may use a connection in a hook, and it may die there.
func TestCallsWorkAgainAfterAHookHasHung(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	for name, set := range map[string]func(*pgxpool.Config, func(context.Context) error){
		"BeforeConnect": func(c *pgxpool.Config, hook func(context.Context) error) {
			c.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error { return hook(ctx) }
		},
		"AfterConnect": func(c *pgxpool.Config, hook func(context.Context) error) {
			c.AfterConnect = func(ctx context.Context, _ *pgx.Conn) error { return hook(ctx) }
		},
		"AfterConnect of pgconn": func(c *pgxpool.Config, hook func(context.Context) error) {
			c.ConnConfig.AfterConnect = func(ctx context.Context, _ *pgconn.PgConn) error { return hook(ctx) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hangs atomic.Bool
			var hung atomic.Int32
			s := newIn(t, poolWith(t, p.URL(), func(c *pgxpool.Config) {
				set(c, func(ctx context.Context) error {
					if hangs.Load() {
						hung.Add(1)
						<-ctx.Done()
					}
					return ctx.Err()
				})
			}))
			pool := pgstore.Pool(s)
			hangs.Store(true)
			pool.Reset()
			var wg sync.WaitGroup
			eventually(t, "all connections hang", func() bool {
				wg.Go(func() { s.Acquire(t.Context(), suites.Queued(name)) })
				return hung.Load() >= pool.Stat().MaxConns()
			})
			hangs.Store(false)
			wg.Wait()
			eventually(t, "calls work, and the store listens", func() bool {
				_, err := s.Acquire(t.Context(), suites.Queued(name))
				return err == nil && pgstore.Pushed(s)
			})
		})
	}
}

// PgBouncer is in transaction mode, has more clients than connections, and is restarted during
// the test.
func TestClientsBehindPgBouncerGoOnAfterItsRestart(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	b := servers.StartPgBouncer(t, p)
	const clients, names = 64, 20
	var all []*holdfast.Client
	for range clients {
		all = append(all, client(t, open(t, servers.PostgresURL(b.Addr())+"&pool_max_conns=2")))
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		suites.Contend(t, all, clients, names, 6*time.Second, func(_ int, unlocked error) {
			if unlocked != nil && !errors.Is(unlocked, holdfast.ErrUnavailable) {
				t.Errorf("Unlock: %v", unlocked)
			}
			done.Add(1)
		}, holdfast.Retry(holdfast.Every(20*time.Millisecond)))
	})
	time.Sleep(2 * time.Second)
	before := done.Load()
	b.Restart()
	wg.Wait()
	if n := done.Load() - before; n < clients {
		t.Errorf("%d locks after the restart of PgBouncer, want at least one for each client", n)
	}
}

// The errors of a standby server, and of settings that end statements early, say what to do.
func TestErrorsOfSettingsSayWhatToDo(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{})
	s := openStore(t, p.URL())
	granted(t, s, request("n"))
	standby := p.StartReplica(t)
	var err error
	eventually(t, "the standby has no schema", func() bool {
		var on store.Store
		if on, err = store.Open(t.Context(), standby.URL()); err != nil {
			return false
		}
		defer on.Close()
		_, err = on.Acquire(t.Context(), request("n"))
		return true
	})
	if err == nil || !strings.Contains(err.Error(), "name the primary") {
		t.Errorf("Acquire at a standby: %v, want an error that says what to do", err)
	}
	blocked := request("blocked")
	granted(t, s, blocked)
	unlock := lockRow(t, p.URL(), "blocked")
	for what, says := range map[string]string{
		"lock_timeout%3D100":      "another session has locked the row", // the functions have a lock_timeout of their own
		"statement_timeout%3D400": "statement_timeout is too short",     // less than the lock_timeout of the functions
	} {
		short := open(t, p.URL()+"&options=-c%20"+what)
		_, err := short.Acquire(t.Context(), request("blocked"))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("with %s: %v, want an error that says what to do", what, err)
		}
		granted(t, short, request(what))
	}
	unlock()
	for _, level := range []string{"serializable", `repeatable%5C%20read`} {
		_, err := store.Open(t.Context(), p.URL()+"&options=-c%20default_transaction_isolation%3D"+level)
		if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "read committed") {
			t.Errorf("transactions that are %s: %v, want ErrUnsupported that says what to do", level, err)
		}
	}
}

// Low timeouts that an administrator has set for all sessions end statements and connections of a
// busy store. Callers do not notice.
func TestLowTimeoutsOfTheServerDoNotReachCallers(t *testing.T) {
	p := server(t)
	open(t, p.URL()+"&schema=low") // creates the schema
	url := p.URL() + "&options="
	for _, setting := range []string{"lock_timeout=5", "statement_timeout=500", "idle_in_transaction_session_timeout=1", "idle_session_timeout=500"} {
		url += "%20-c%20" + strings.ReplaceAll(setting, "=", "%3D")
	}
	var all []*holdfast.Client
	for range 2 {
		s := newIn(t, newPool(t, url, 4), pgstore.InSchema("low"), pgstore.Logger(slog.New(slog.DiscardHandler)))
		all = append(all, client(t, s))
	}
	long, err := all[0].Lock(t.Context(), "long", holdfast.TTL(2*time.Second))
	must(t, err)
	suites.Contend(t, all, 32, 2, 4*time.Second, func(k int, unlocked error) {
		if unlocked != nil {
			t.Errorf("Unlock: %v", unlocked)
		}
		if k%100 == 0 {
			time.Sleep(600 * time.Millisecond) // longer than idle_session_timeout
		}
	})
	if err := long.Unlock(t.Context()); err != nil {
		t.Errorf("a lease that was renewed meanwhile: %v", err)
	}
}
