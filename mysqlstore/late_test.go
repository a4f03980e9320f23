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

// A lateBed delays one request of a store in a proxy. Later connections avoid the proxy.
type lateBed struct {
	t      *testing.T
	proxy  *faultproxy.Proxy
	direct atomic.Bool
	db     *sql.DB
	s      *Store // connects through the proxy until direct is set
	other  *Store // connects directly
	open   int    // connections by the proxy
}

func newLateBed(t *testing.T) *lateBed {
	b := &lateBed{t: t, proxy: faultproxy.Start(t, one.Addr()), db: connectTo(t, nil)}
	b.other = newIn(t, b.db)
	b.s = newIn(t, poolOf(t, databaseOf(t, b.db), func(c *mysql.Config) {
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !b.direct.Load() {
				addr = b.proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	}))
	return b
}

// delay acquires a name, and gives up while the request is in the proxy.
func (b *lateBed) delay(r store.Request) {
	b.t.Helper()
	b.proxy.Abandon(b.t, func(request []byte) bool { return bytes.Contains(request, r.ID[:]) }, func(ctx context.Context) error {
		_, err := b.s.Acquire(ctx, r)
		return err
	}, func() {
		b.open = b.proxy.Open()
		b.direct.Store(true)
	})
}

// arrive lets the request arrive, and waits until the server has executed it. Then it closes the
// connection, as the client has done.
func (b *lateBed) arrive() {
	b.t.Helper()
	b.proxy.Heal()
	eventually(b.t, "the late request was executed", func() bool { return b.proxy.Open() < b.open })
}

func TestLateRequestsAreNotGranted(t *testing.T) {
	suites.Late(t, func(t *testing.T) *suites.LateBed {
		b := newLateBed(t)
		return &suites.LateBed{S: b.s, Other: b.other, Delay: b.delay, Arrive: b.arrive}
	})
}

// Records of late requests expire after a minute, and the name is plain again.
func TestNotesOfLateRequestsEnd(t *testing.T) {
	b := newLateBed(t)
	r := request("late")
	b.delay(r)
	leave(t, b.s, r)
	b.arrive()
	page, err := b.other.List(limited(t), store.Query{})
	if err != nil || len(page.Locks) > 0 {
		t.Errorf("List: %+v, %v; want nothing", page, err)
	}
	count := func(condition string) (n int) {
		scan(t, b.db, "SELECT COUNT(*) FROM holdfast_names LEFT JOIN holdfast_claims c USING (name) WHERE "+condition, &n)
		return n
	}
	if n := count("special = 1 AND seq = -1 AND c.until - c.since = 60000000"); n != 1 {
		t.Errorf("%d notes for a minute, want one", n)
	}
	setClock(t, b.other, time.Minute+time.Second)
	granted(t, b.other, request("late"))
	if n := count("special = 1 OR seq IS NOT NULL"); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}
