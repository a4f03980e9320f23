package mysqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// through returns settings of connections that go through a proxy until direct is set.
func through(proxy *faultproxy.Proxy, direct *atomic.Bool) func(c *mysql.Config) {
	return func(c *mysql.Config) {
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !direct.Load() {
				addr = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}
}

// newLateBed delays one request of a store in a proxy. Later connections avoid the proxy.
func newLateBed(t *testing.T) (b *suites.LateBed, db *sql.DB) {
	proxy, direct := faultproxy.Start(t, one.Addr()), new(atomic.Bool)
	db = connectTo(t, nil)
	b = &suites.LateBed{Other: newIn(t, db), S: newIn(t, poolOf(t, databaseOf(t, db), through(proxy, direct)))}
	open := 0 // connections by the proxy
	b.Delay = func(r store.Request) {
		t.Helper()
		proxy.Abandon(t, func(request []byte) bool { return bytes.Contains(request, r.ID[:]) }, func(ctx context.Context) error {
			_, err := b.S.Acquire(ctx, r)
			return err
		}, func() {
			open = proxy.Open()
			direct.Store(true)
		})
	}
	b.Arrive = func() { // and close the connection, as the client has done
		t.Helper()
		proxy.Heal()
		eventually(t, "the late request was executed", func() bool { return proxy.Open() < open })
	}
	return b, db
}

func TestLateRequestsAreNotGranted(t *testing.T) {
	suites.Late(t, func(t *testing.T) *suites.LateBed {
		b, _ := newLateBed(t)
		return b
	})
}

// Records of late requests expire after a minute, and the name is plain again.
func TestNotesOfLateRequestsEnd(t *testing.T) {
	b, db := newLateBed(t)
	r := request("late")
	b.Delay(r)
	leave(t, b.S, r)
	b.Arrive()
	page, err := b.Other.List(limited(t), store.Query{})
	if err != nil || len(page.Locks) > 0 {
		t.Errorf("List: %+v, %v; want nothing", page, err)
	}
	count := func(condition string) (n int) {
		scan(t, db, "SELECT COUNT(*) FROM holdfast_names LEFT JOIN holdfast_claims c USING (name) WHERE "+condition, &n)
		return n
	}
	if n := count("special = 1 AND seq = -1 AND c.until - c.since = 60000000"); n != 1 {
		t.Errorf("%d notes for a minute, want one", n)
	}
	setClock(t, b.Other.(*Store), time.Minute+time.Second)
	granted(t, b.Other, request("late"))
	if n := count("special = 1 OR seq IS NOT NULL"); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}
