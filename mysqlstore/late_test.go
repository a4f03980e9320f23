package mysqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
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

// A request may arrive after the call that undoes it, because the network delays it or the server
// hangs. If it were granted, the name would be held without a holder until the TTL is over.
func TestALateRequestIsNotGrantedAfterItsLeave(t *testing.T) {
	b := newLateBed(t)
	r := request("late")
	b.delay(r)
	if err := b.s.Leave(limited(t), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	b.arrive()
	granted(t, b.other, request("late"))
}

func TestALateRequestIsNotGrantedAfterItWasRepeatedAndReleased(t *testing.T) {
	b := newLateBed(t)
	r := request("late")
	b.delay(r)
	granted(t, b.s, r)
	release(t, b.s, r)
	b.arrive()
	granted(t, b.other, request("late"))
}

// The grant may be broken by any program, which does not know that a request of the holder has no reply.
// If that request were granted, the holder would renew its lease again, with a token below that of
// another holder.
func TestABrokenGrantIsNotGrantedByALateRequest(t *testing.T) {
	for _, who := range []string{"its own store", "another store"} {
		t.Run("broken by "+who, func(t *testing.T) {
			b := newLateBed(t)
			r := request("broken")
			b.delay(r)
			granted(t, b.s, r)
			breaker := b.s
			if who == "another store" {
				breaker = b.other
			}
			if err := breaker.Break(limited(t), r.Name, r.ID); err != nil {
				t.Fatal(err)
			}
			next := request("broken")
			granted(t, b.other, next)
			release(t, b.other, next)
			b.arrive()
			out, err := b.s.Renew(limited(t), []store.Renewal{{Name: r.Name, ID: r.ID, Mode: r.Mode, TTL: r.TTL}})
			if err != nil || out[0].Status != store.Gone {
				t.Errorf("Renew: %+v, %v; want that the grant is gone", out, err)
			}
			granted(t, b.other, request("broken"))
		})
	}
}

// Neither a renewal nor a refused Release ends a grant, even if the first request for it had no
// reply.
func TestAGrantWhoseFirstRequestIsLateCanBeAskedForAgain(t *testing.T) {
	b := newLateBed(t)
	r := request("renewed")
	r.Mode = store.Shared
	b.delay(r)
	first := granted(t, b.s, r)
	out, err := b.s.Renew(limited(t), []store.Renewal{{Name: r.Name, ID: r.ID, Mode: r.Mode, TTL: r.TTL}})
	if err != nil || out[0].Status != store.Extended {
		t.Fatalf("Renew: %+v, %v", out, err)
	}
	if again := granted(t, b.s, r); again.Token != first.Token {
		t.Errorf("token %d, then %d", first.Token, again.Token)
	}
	if err := b.s.Release(limited(t), r.Name, r.ID, store.Keep{State: store.Done, For: time.Minute}); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("Release: %v", err)
	}
	if again := granted(t, b.s, r); again.Token != first.Token {
		t.Errorf("token %d, then %d", first.Token, again.Token)
	}
}

// Break ends only grants. A waiter keeps its place, even if its first request is late.
func TestAWaiterWhoseFirstRequestIsLateCannotBeBroken(t *testing.T) {
	b := newLateBed(t)
	granted(t, b.other, request("waiter"))
	r := request("waiter")
	r.Queue = true
	b.delay(r)
	refused(t, b.s, r)
	if err := b.s.Break(limited(t), r.Name, r.ID); !errors.Is(err, store.ErrNotHeld) {
		t.Fatalf("Break: %v", err)
	}
	b.arrive()
	if again := refused(t, b.s, r); again.Place != 1 {
		t.Errorf("place %d, want 1", again.Place)
	}
}

// A request that was not sent, because there was no connection for it, cannot arrive late.
func TestARequestThatWasNotSentIsNotNoted(t *testing.T) {
	b := newLateBed(t)
	r := request("unsent")
	b.db.SetMaxOpenConns(3)
	s := newIn(t, b.db)
	for b.db.Stats().InUse < 3 {
		conn, err := b.db.Conn(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := s.Acquire(limited(t), r); err == nil {
		t.Fatal("Acquire without a connection")
	}
	if s.unanswered.Has(r.ID) {
		t.Error("the request is expected to arrive late")
	}
}

// Records of late requests expire after a minute, and the name is plain again.
func TestNotesOfLateRequestsEnd(t *testing.T) {
	b := newLateBed(t)
	r := request("late")
	b.delay(r)
	if err := b.s.Leave(limited(t), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	b.arrive()
	page, err := b.other.List(limited(t), store.Query{})
	if err != nil || len(page.Locks) > 0 {
		t.Errorf("List: %+v, %v; want nothing", page, err)
	}
	count := func(condition string) (n int) {
		if err := b.db.QueryRow("SELECT COUNT(*) FROM holdfast_names LEFT JOIN holdfast_claims c USING (name) WHERE " + condition).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count("special = 1 AND seq = -1 AND c.until - c.since = 60000000"); n != 1 {
		t.Errorf("%d notes for a minute, want one", n)
	}
	setClock(t, b.other, time.Minute+time.Second)
	r = request("late")
	granted(t, b.other, r)
	if n := count("special = 1 OR seq IS NOT NULL"); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}
