package pgstore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A lateBed delays one request of a store in a proxy. Later connections avoid the proxy.
type lateBed struct {
	suites.LateBed
	p     *servers.Postgres
	proxy *faultproxy.Proxy
	s     *pgstore.Store // LateBed.S
}

const lateSchema = "late"

// through returns a dialer that connects through a proxy until direct is set.
func through(proxy *faultproxy.Proxy, direct *atomic.Bool) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !direct.Load() {
			addr = proxy.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

// newLateBed opens the given number of connections through the proxy.
func newLateBed(t *testing.T, conns int) *lateBed {
	b, direct := &lateBed{p: server(t)}, new(atomic.Bool)
	b.proxy = faultproxy.Start(t, b.p.Addr())
	b.Other = open(t, b.p.URL()+"&schema="+lateSchema)
	b.s = newIn(t, poolWith(t, b.p.URL(), func(config *pgxpool.Config) {
		config.MaxConns = 8
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the first message is the whole request
		config.ConnConfig.DialFunc = through(b.proxy, direct)
	}), pgstore.InSchema(lateSchema))
	b.S = b.s
	for range conns {
		conn, err := pgstore.Pool(b.s).Acquire(t.Context())
		must(t, err)
		defer conn.Release()
	}
	open := 0 // connections through the proxy
	b.Delay = func(r store.Request) {
		t.Helper()
		b.proxy.Abandon(t, func(request []byte) bool { return bytes.Contains(request, []byte(r.Name)) }, func(ctx context.Context) error {
			_, err := b.s.Acquire(ctx, r)
			return err
		}, func() {
			open = b.proxy.Open()
			direct.Store(true)
		})
	}
	b.Arrive = func() { // The server then closes the connection, because the client has closed its side.
		t.Helper()
		b.proxy.Heal()
		eventually(t, "the late request is still in flight", func() bool { return b.proxy.Open() < open })
	}
	return b
}

func TestLateRequestsAreNotGranted(t *testing.T) {
	suites.Late(t, func(t *testing.T) *suites.LateBed {
		b := newLateBed(t, 1)
		granted(t, b.Other, request("listen"))
		waiter := queued(t, b.s, "listen") // from here on it listens through the proxy
		leave(t, b.s, waiter)
		return &b.LateBed
	})
}

func TestALateRequestOfABatchIsNotGrantedAfterItsLeave(t *testing.T) {
	b := newLateBed(t, 3)
	b.proxy.ToServer.Hold()
	var busy sync.WaitGroup
	defer busy.Wait()
	defer b.proxy.Heal()
	for i := range 2 { // this many calls are sent alone, and the next call is part of a batch
		busy.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			b.s.Acquire(ctx, request(fmt.Sprint("busy", i)))
		})
	}
	eventually(t, "the first calls are not in flight", func() bool { return pgstore.InFlight(b.s) == 2 })
	r := request("late")
	b.Delay(r)
	// It has to wait for one of the calls in flight, whose time limit may be over no sooner than its own.
	eventually(t, "Leave has no reply", func() bool { return b.s.Leave(suites.Limited(t), r.Name, r.ID) == nil })
	b.proxy.Heal()
	busy.Wait()
	eventually(t, "the late request is still in flight", func() bool { return pgstore.InFlight(b.s) == 0 })
	granted(t, b.Other, request("late"))
}

func TestALateHeartbeatOfAWaiterDoesNotBringItBack(t *testing.T) {
	b := newLateBed(t, 1)
	holder := request("waiter")
	granted(t, b.Other, holder)
	r := suites.Queued("waiter")
	refused(t, b.s, r)
	b.Delay(r)
	leave(t, b.s, r)
	release(t, b.Other, holder)
	b.Arrive()
	granted(t, b.Other, request("waiter"))
}

// Records of late requests expire after a minute, and the name is plain again.
func TestNotesOfLateRequestsEnd(t *testing.T) {
	b := newLateBed(t, 1)
	r := request("noted")
	b.Delay(r)
	leave(t, b.s, r)
	b.Arrive()
	if n := number(t, b.p, "SELECT count(*) FROM late.ended WHERE until BETWEEN late.now_us() + 50000000 AND late.now_us() + 60000000"); n != 1 {
		t.Errorf("%d notes for a minute, want one", n)
	}
	b.p.Must("UPDATE late.ended SET until = 0")
	pair(t, b.Other, "noted")
	if left := rows(t, b.p, lateSchema); left != nil {
		t.Errorf("left: %q", left)
	}
	if n := number(t, b.p, "SELECT count(*) FROM late.ended"); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// A renewal of many grants needs several statements. If its time is over after the first ones, the
// grants that they have extended count as renewed.
func TestARenewalThatIsGivenUpReturnsWhatWasRenewed(t *testing.T) {
	b := newLateBed(t, 1)
	const n, first = 100, 64 // the first statement has 64 of them
	renewals := make([]store.Renewal, n)
	for i := range renewals {
		r := request(fmt.Sprintf("many/%03d/", i))
		granted(t, b.Other, r)
		renewals[i] = renewal(r)
	}
	var out []store.Renewed
	b.proxy.Abandon(t, func(request []byte) bool { return bytes.Contains(request, []byte(renewals[n-1].Name)) }, func(ctx context.Context) (err error) {
		if out, err = b.s.Renew(ctx, renewals); err == nil {
			err = ctx.Err()
		}
		return err
	}, func() {})
	b.proxy.Heal()
	if len(out) != n {
		t.Fatalf("%d outcomes, want %d", len(out), n)
	}
	for i, o := range out {
		if extended := i < first; (o.Status == store.Extended) != extended || (o.Err == nil) != extended {
			t.Errorf("grant %d: %+v", i, o)
		}
	}
}
