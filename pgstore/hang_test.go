package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A hung server must not delay a call beyond its context, nor Close for long.
func TestCallsEndWithTheirContextsOnAHungServer(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	s, other := openStore(t, p.URL()), openStore(t, p.URL())
	held, waits := request("held"), request("held")
	granted(t, s, held)
	waits.Queue = true
	refused(t, s, waits)
	p.Stop()
	defer p.Continue()
	for what, call := range map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, request("a")); return err },
		"Wait":    func(ctx context.Context) error { return s.Wait(ctx, waits.Name, waits.ID) },
		"Release": func(ctx context.Context) error { return s.Release(ctx, held.Name, held.ID, store.Keep{}) },
		"Leave":   func(ctx context.Context) error { return s.Leave(ctx, held.Name, held.ID) },
		"Renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, []store.Renewal{{Name: held.Name, ID: held.ID, TTL: time.Minute, Mode: store.Exclusive}})
			return err
		},
		"List": func(ctx context.Context) error { _, err := s.List(ctx, store.Query{}); return err },
	} {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := call(ctx)
		cancel()
		early := what == "Wait" // Wait may return for no reason
		if took := time.Since(begin); err == nil && !early || took > 2*time.Second {
			t.Errorf("%s: %v after %v", what, err, took)
		}
	}
	begin := time.Now()
	s.Close()
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	p.Continue()
	granted(t, other, request("after"))
}

// The store declares a timeout, so the core sets none. Every call must end by itself, also if it has
// to wait for another call or for a connection. Its error must not match that of a context, because
// that of the caller has not ended.
func TestEveryCallEndsInTime(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	held := request("held")
	check := func(t *testing.T, s *pgstore.Store) {
		t.Helper()
		renewals := []store.Renewal{{Name: held.Name, ID: held.ID, TTL: held.TTL, Mode: held.Mode}}
		renew := func(ctx context.Context, renewals []store.Renewal) error {
			outcomes, err := s.Renew(ctx, renewals)
			for i := range outcomes {
				err = errors.Join(err, outcomes[i].Err)
			}
			return err
		}
		calls := map[string]func(ctx context.Context) error{
			"Acquire":    func(ctx context.Context) error { _, err := s.Acquire(ctx, request("n")); return err },
			"Release":    func(ctx context.Context) error { return s.Release(ctx, held.Name, held.ID, store.Keep{}) },
			"Leave":      func(ctx context.Context) error { return s.Leave(ctx, held.Name, held.ID) },
			"Break":      func(ctx context.Context) error { return s.Break(ctx, held.Name, held.ID) },
			"List":       func(ctx context.Context) error { _, err := s.List(ctx, store.Query{}); return err },
			"Renew":      func(ctx context.Context) error { return renew(ctx, renewals) },
			"Renew many": func(ctx context.Context) error { return renew(ctx, slices.Repeat(renewals, 200)) },
		}
		limit := s.Capabilities().Timeout + 2*time.Second // the last for a busy machine
		endless, cancel := context.WithCancel(context.Background())
		defer cancel()
		var wg sync.WaitGroup
		for name, call := range calls {
			for i := range 4 {
				ctx := context.Background()
				if i%2 == 0 {
					ctx = endless
				}
				wg.Go(func() {
					begin := time.Now()
					err := call(ctx)
					if took := time.Since(begin); err == nil || took > limit {
						t.Errorf("%s returned %v after %v, want an error within %v", name, err, took, limit)
					}
					if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(fmt.Sprint(err), "no reply in time") {
						t.Errorf("%s returned %v, want no reply in time", name, err)
					}
				})
			}
		}
		wg.Wait()
		eventually(t, "the batches have ended too", func() bool { return pgstore.InFlight(s) == 0 })
	}
	t.Run("hung", func(t *testing.T) {
		s := openStore(t, p.URL())
		granted(t, s, held)
		p.Stop()
		defer p.Continue()
		check(t, s)
	})
	t.Run("hung before the first call", func(t *testing.T) {
		s := openStore(t, p.URL())
		p.Stop()
		defer p.Continue()
		check(t, s)
	})
	t.Run("hung, and connecting has a shorter limit", func(t *testing.T) {
		s := openStore(t, p.URL()+"&connect_timeout=1")
		p.Stop()
		defer p.Continue()
		check(t, s)
	})
	t.Run("pool used up", func(t *testing.T) {
		pool := newPool(t, p.URL(), 2)
		s, err := pgstore.New(pool)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 2 {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
		}
		check(t, s)
	})
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

// The network drops the packets of connections that were idle, and new connections work: there was a
// failover, or a firewall forgot them. The pool tests such connections before it uses them, until the
// deadline of the call, or for a minute if there is none. Then pgx needs 15 seconds to close one. The
// pool of Open has a shorter limit for a test, and room for new connections.
func TestCallsWorkAgainAfterIdleConnectionsHaveDied(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	endless, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	applications, err := pgxpool.ParseConfig(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	applications.MaxConns = 2
	own, _, err := pgstore.PoolConfig(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		ctx    context.Context
		config *pgxpool.Config
		idle   int
		limit  time.Duration
	}{
		"a context without an end": {context.Background(), applications, 2, 40 * time.Second},
		"a context with an end":    {endless, applications, 2, 40 * time.Second},
		"the pool of Open":         {endless, own, 3, 10 * time.Second}, // three tests, and one more call
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := faultproxy.Start(t, p.Addr())
			var direct atomic.Bool
			config := test.config.Copy()
			config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
			config.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
				addr := proxy.Addr()
				if direct.Load() {
					addr = p.Addr()
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			s, err := pgstore.New(pool)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			conns := make([]*pgxpool.Conn, test.idle)
			for i := range conns {
				if conns[i], err = pool.Acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			for _, conn := range conns {
				conn.Release()
			}
			eventually(t, "idle connections", func() bool { return int(pool.Stat().IdleConns()) == test.idle })
			proxy.ToServer.Hold()
			direct.Store(true)
			defer proxy.Heal()
			begin := time.Now()
			for time.Since(begin) < test.limit {
				if _, err = s.Acquire(test.ctx, request("after")); err == nil {
					t.Logf("worked after %v", time.Since(begin))
					return
				}
			}
			t.Errorf("no call succeeded, and %d of %d connections are in use: %v", pool.Stat().AcquiredConns(), pool.Stat().MaxConns(), err)
		})
	}
}

// Callers give up while the server hangs. When the server continues, it executes their requests
// and the requests that undo them in any order.
func TestAHungServerKeepsNothingOfRequestsThatWereGivenUp(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	c, err := holdfast.Open(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other := openStore(t, p.URL())
	const rounds, calls = 5, 16
	for round := range rounds {
		var wg sync.WaitGroup
		for i := range calls { // so that there are connections
			wg.Go(func() {
				lease, err := c.TryLock(t.Context(), fmt.Sprint("warm", i))
				if err == nil {
					err = lease.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		p.Stop()
		for i := range calls {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Millisecond)
				defer cancel()
				if _, err := c.TryLock(ctx, fmt.Sprint(round, "/", i)); err == nil {
					t.Error("a server that hangs granted a lock")
				}
			})
		}
		wg.Wait()
		time.Sleep(50 * time.Millisecond) // meanwhile the requests that undo them are sent
		p.Continue()
		for i := range calls {
			eventually(t, "a name is held by nobody", func() bool {
				r := request(fmt.Sprint(round, "/", i))
				a, err := other.Acquire(t.Context(), r)
				if err != nil || !a.Granted() {
					return false
				}
				release(t, other, r)
				return true
			})
		}
	}
}

// contend lets workers, which share clients, take one name after the other for a time. It checks that
// a name has one holder at a time and that its tokens grow. After each turn of a worker, it calls
// after with the outcome of Unlock.
func contend(t *testing.T, clients []*holdfast.Client, workers, names int, d time.Duration, after func(turn int, unlocked error), opts ...holdfast.CallOption) {
	held, tokens := make([]atomic.Bool, names), make([]atomic.Int64, names)
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for turn := i; time.Now().Before(end); turn++ {
				n := turn % names
				lease, err := clients[i%len(clients)].Lock(t.Context(), fmt.Sprint("name", n), opts...)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if !held[n].CompareAndSwap(false, true) {
					t.Errorf("name%d has two holders", n)
				}
				if before := tokens[n].Swap(lease.Token()); before >= lease.Token() {
					t.Errorf("name%d: token %d after %d", n, lease.Token(), before)
				}
				held[n].Store(false)
				after(turn, lease.Unlock(t.Context()))
			}
		})
	}
	wg.Wait()
}

// PgBouncer is in transaction mode, has more clients than connections, and is restarted during
// the test.
func TestClientsBehindPgBouncerGoOnAfterItsRestart(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	b := servers.StartPgBouncer(t, p, servers.PgBouncerOptions{Config: []string{"max_client_conn = 500"}})
	const clients, names = 64, 20
	var all []*holdfast.Client
	for range clients {
		c, err := holdfast.Open(t.Context(), servers.PostgresURL(b.Addr())+"&pool_max_conns=2")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		contend(t, all, clients, names, 6*time.Second, func(_ int, unlocked error) {
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
	t.Logf("%d locks", done.Load())
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
		"statement_timeout%3D100": "statement_timeout is too short",
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

// Backends are terminated repeatedly while one client has batches in flight on them.
func TestBackendsTerminatedInTheMiddleOfBatches(t *testing.T) {
	p := server(t)
	url := p.URL() + "&schema=batched&application_name=batched&pool_max_conns=3"
	var all []*holdfast.Client
	for range 2 {
		c, err := holdfast.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	const d = 3 * time.Second
	var done atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		contend(t, all, 64, 16, d, func(_ int, unlocked error) {
			if unlocked != nil && !errors.Is(unlocked, holdfast.ErrUnavailable) {
				t.Errorf("Unlock: %v", unlocked)
			}
			done.Add(1)
		}, holdfast.Retry(holdfast.Every(10*time.Millisecond)))
	})
	for begin := time.Now(); time.Since(begin) < d; time.Sleep(30 * time.Millisecond) {
		p.Terminate("application_name = 'batched'")
	}
	wg.Wait()
	if done.Load() < 64 {
		t.Errorf("only %d locks", done.Load())
	}
	t.Logf("%d locks", done.Load())
}

// Low timeouts that an administrator has set for all sessions end statements and connections of a
// busy store. Callers do not notice.
func TestLowTimeoutsOfTheServerDoNotReachCallers(t *testing.T) {
	p := server(t)
	open(t, p.URL()+"&schema=low") // creates the schema
	url := p.URL() + "&options="
	for _, setting := range []string{"lock_timeout=5", "statement_timeout=500", "idle_in_transaction_session_timeout=1", "idle_session_timeout=100"} {
		url += "%20-c%20" + strings.ReplaceAll(setting, "=", "%3D")
	}
	var all []*holdfast.Client
	for range 2 {
		s, err := pgstore.New(newPool(t, url, 4), pgstore.InSchema("low"), pgstore.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, err := holdfast.New(s)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all = append(all, c)
	}
	long, err := all[0].Lock(t.Context(), "long", holdfast.TTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	contend(t, all, 32, 2, 4*time.Second, func(k int, unlocked error) {
		if unlocked != nil {
			t.Errorf("Unlock: %v", unlocked)
		}
		if k%50 == 0 {
			time.Sleep(150 * time.Millisecond) // longer than idle_session_timeout
		}
	})
	if err := long.Unlock(t.Context()); err != nil {
		t.Errorf("a lease that was renewed meanwhile: %v", err)
	}
}

// An application may let its pool wait for the server after the end of a context, to cancel the
// statement and keep the connection. A server that hangs does not answer that either.
func TestCallsEndInTimeOnAPoolThatIsSlowToCancel(t *testing.T) {
	const delay, soon = 15 * time.Second, 5 * time.Second
	p := server(t)
	proxy := faultproxy.Start(t, p.Addr())
	config, err := pgxpool.ParseConfig(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	config.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, proxy.Addr())
	}
	config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: delay}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	t.Cleanup(proxy.Heal)
	s, err := pgstore.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	held := request("n")
	granted(t, s, held)
	waiter := request("n")
	waiter.Queue = true
	refused(t, s, waiter) // so that the store listens
	var conns []*pgxpool.Conn
	for range config.MaxConns { // so that each call has a connection
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	proxy.Hold()
	for _, conn := range conns {
		conn.Release()
	}
	for what, call := range map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := s.Acquire(ctx, request("other"))
			return err
		},
		"Renew": func(ctx context.Context) error {
			renewal := store.Renewal{Name: held.Name, ID: held.ID, Mode: held.Mode, TTL: held.TTL}
			_, err := s.Renew(ctx, []store.Renewal{renewal, {Name: "gone", ID: store.NewID(), Mode: store.Exclusive, TTL: held.TTL}})
			return err
		},
		"List": func(ctx context.Context) error {
			_, err := s.List(ctx, store.Query{})
			return err
		},
	} {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		if took := time.Since(begin); took > soon {
			t.Errorf("%s took %v", what, took)
		}
	}
	begin := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > soon {
		t.Errorf("Close took %v", took)
	}
}
