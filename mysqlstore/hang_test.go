package mysqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func TestCallsEndWithTheirContextsOnAHungServer(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	url := server.URL(server.Addr())
	suites.HungServer(t, openStore(t, url), openStore(t, url), func() (goOn func()) {
		server.Stop()
		return server.Continue
	})
}

func TestEveryCallEndsInTime(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	url := server.URL(server.Addr())
	held := request("held")
	for what, first := range map[string]func(s *Store){
		"hung":                       func(s *Store) { granted(t, s, held) },
		"hung before the first call": func(*Store) {},
	} {
		t.Run(what, func(t *testing.T) {
			s := openStore(t, url)
			first(s)
			server.Stop()
			defer server.Continue()
			suites.EndInTime(t, s, held)
		})
	}
	t.Run("a dialer that does not look at its context", func(t *testing.T) {
		hangs := make(chan struct{})
		var hung atomic.Bool
		db := poolAt(t, server, func(c *mysql.Config) {
			c.DialFunc = func(_ context.Context, network, addr string) (net.Conn, error) {
				if hung.Load() {
					<-hangs
				}
				return net.Dial(network, addr)
			}
		})
		s := newIn(t, db)
		db.SetMaxIdleConns(0)
		hung.Store(true)
		release := sync.OnceFunc(func() { close(hangs) })
		defer release()
		defer time.AfterFunc(time.Minute, release).Stop() // if Close hangs
		suites.EndInTime(t, s, held)
		begin := time.Now()
		if s.Close(); time.Since(begin) > closeTimeout+time.Second {
			t.Errorf("Close took %v", time.Since(begin))
		}
	})
}

// The network drops the packets of connections that are idle in the application's pool, and new
// connections work: there was a failover, or a firewall forgot them.
func TestCallsWorkAgainAfterIdleConnectionsHaveDied(t *testing.T) {
	const idle, limit = 8, 15 * time.Second
	proxy := faultproxy.Start(t, one.Addr())
	var direct atomic.Bool
	db := connectTo(t, through(proxy, &direct))
	db.SetMaxIdleConns(idle)
	s := newIn(t, db)
	var conns [idle]*sql.Conn
	for i := range conns {
		var err error
		conns[i], err = db.Conn(limited(t))
		must(t, err)
	}
	for _, c := range conns {
		c.Close()
	}
	proxy.ToServer.Hold()
	defer proxy.Heal()
	direct.Store(true)
	suites.WorksBy(t, s, time.Now().Add(limit))
}

// Only idle connections can be dead. A server that is slow must not lose new ones.
func TestASlowServerKeepsNewConnections(t *testing.T) {
	db := connectTo(t, nil)
	newIn(t, db)
	proxy := faultproxy.Start(t, one.Addr())
	proxy.ToClient.Delay(idlePatience + 50*time.Millisecond)
	slow := poolOf(t, databaseOf(t, db), func(c *mysql.Config) { c.Addr = proxy.Addr() })
	if err := Migrate(limited(t), slow, ""); err != nil {
		t.Error(err)
	}
}

// If the server does not answer, a call ends soon after its caller has given up. If it answers within
// the grace, the connection stays open.
func TestACallEndsSoonAfterItsCallerGaveUp(t *testing.T) {
	db := connectTo(t, nil)
	newIn(t, db)
	proxy := faultproxy.Start(t, one.Addr())
	s := openStore(t, urlIn(databaseOf(t, db), proxy.Addr()))
	s.sweep.next = time.Now().Add(time.Hour) // so that all replies are those of the calls below
	// abandon cancels a call while its reply is held, and returns how long the call continues.
	abandon := func(name string, then func()) (took time.Duration) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		proxy.ToClient.Hold()
		done := make(chan error)
		go func() { _, err := s.Acquire(ctx, request(name)); done <- err }()
		eventually(t, "the reply is held", func() bool { return proxy.ToClient.Waiting() > 0 })
		begin := time.Now()
		cancel()
		then()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the end of the context", name, err)
		}
		return time.Since(begin)
	}
	var connection *conn
	eventually(t, "a reply arrives within the grace", func() bool {
		granted(t, s, request(rand.Text()))
		connection = s.takes.conn
		return abandon(rand.Text(), proxy.Heal) < grace
	})
	granted(t, s, request("after slow"))
	if s.takes.conn != connection {
		t.Error("a reply within the grace cost the connection")
	}
	if took := abandon("hung", func() {}); took < grace || took > callTimeout/2 {
		t.Errorf("returned after %v, want about %v", took, grace)
	}
	proxy.Heal()
	granted(t, s, request("after hung"))
	if s.takes.conn == connection {
		t.Error("a connection with a statement in flight is used again")
	}
}

// A failover may leave the old primary running, read-only, with its connections open. The store
// must not keep them, because new connections reach the new primary.
func TestAStoreLeavesAPrimaryThatBecomesReadOnly(t *testing.T) {
	old, primary := servers.StartMariaDB(t, servers.MariaDBOptions{}), servers.StartMariaDB(t, servers.MariaDBOptions{})
	for _, server := range []*servers.MariaDB{old, primary} {
		admin := poolAt(t, server, nil)
		newIn(t, admin)
		mustExec(t, admin, "CREATE USER app@'%' IDENTIFIED BY 'secret'")
		mustExec(t, admin, "GRANT ALL ON `"+servers.MariaDBDatabase+"`.* TO app@'%'")
	}
	var addr atomic.Value // a host name or an address that moves to the new primary
	addr.Store(old.Addr())
	s := newIn(t, poolAt(t, old, func(c *mysql.Config) {
		c.User, c.Passwd = "app", "secret"
		c.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
		}
	}))
	r := request("held")
	granted(t, s, r)
	extended(t, s, renewal(r))
	mustExec(t, poolAt(t, old, nil), "SET GLOBAL read_only = 1")
	addr.Store(primary.Addr())
	if _, err := s.Acquire(limited(t), request("new")); err == nil || !strings.Contains(err.Error(), "connect to the primary") {
		t.Errorf("Acquire at the old primary: %v, want an error that says what to do", err)
	}
	granted(t, s, request("new"))
	renewals := []store.Renewal{renewal(r)}
	s.Renew(limited(t), renewals) // fails, unless a sweep has noticed that the server is read-only
	out, err := s.Renew(limited(t), renewals)
	if err != nil || out[0].Status != store.Gone {
		t.Errorf("Renew at the new primary, which does not have the grant: %+v, %v", out, err)
	}
}

// Connecting takes several round trips. Callers with less time than that use the connection that
// an earlier caller has started to open.
func TestCallersThatHaveLessTimeThanConnectingTakesGetAConnection(t *testing.T) {
	db := connectTo(t, nil)
	newIn(t, db)
	proxy := faultproxy.Start(t, one.Addr())
	s := openStore(t, urlIn(databaseOf(t, db), proxy.Addr()))
	const oneWay = 80 * time.Millisecond
	proxy.ToServer.Delay(oneWay)
	proxy.ToClient.Delay(oneWay)
	r := request("far")
	eventually(t, "a name is granted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 12*oneWay) // connecting takes about 16 one-way trips, and a call takes 2 or 4
		defer cancel()
		_, err := s.Acquire(ctx, r)
		return err == nil
	})
	proxy.Heal()
	release(t, s, r)
}
