package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A lateBed delays one request of a store in a proxy. Later connections avoid the proxy.
type lateBed struct {
	t      *testing.T
	p      *servers.Postgres
	proxy  *faultproxy.Proxy
	direct atomic.Bool
	s      *pgstore.Store // connects through the proxy until direct is set
	other  store.Store    // connects directly
	open   int            // connections through the proxy
}

const lateSchema = "late"

// newLateBed opens the given number of connections through the proxy.
func newLateBed(t *testing.T, conns int) *lateBed {
	b := &lateBed{t: t, p: server(t)}
	b.proxy = faultproxy.Start(t, b.p.Addr())
	b.other = open(t, b.p.URL()+"&schema="+lateSchema)
	config, err := pgxpool.ParseConfig(b.p.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // the first message is the whole request
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !b.direct.Load() {
			addr = b.proxy.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if b.s, err = pgstore.NewOwning(pool, lateSchema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.s.Close() })
	for range conns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	return b
}

// delay acquires a name, and gives up while the request is in the proxy.
func (b *lateBed) delay(r store.Request) {
	b.t.Helper()
	b.proxy.Abandon(b.t, func(request []byte) bool { return bytes.Contains(request, []byte(r.Name)) }, func(ctx context.Context) error {
		_, err := b.s.Acquire(ctx, r)
		return err
	}, func() {
		b.open = b.proxy.Open()
		b.direct.Store(true)
	})
}

// arrive lets the request arrive, and waits until the server has executed it. The server then
// closes the connection, because the client has closed its side.
func (b *lateBed) arrive() {
	b.t.Helper()
	b.proxy.Heal()
	eventually(b.t, "the late request is still in flight", func() bool { return b.proxy.Open() < b.open })
}

// A request may arrive after the call that undoes it, because the network delays it or the server
// hangs. If it were granted, the name would be held without a holder until the TTL is over.
func TestALateRequestIsNotGrantedAfterItsLeave(t *testing.T) {
	b := newLateBed(t, 1)
	r := request("late")
	b.delay(r)
	if err := b.s.Leave(t.Context(), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	b.arrive()
	granted(t, b.other, request("late"))
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
	b.delay(r)
	if err := b.s.Leave(t.Context(), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	b.proxy.Heal()
	busy.Wait()
	eventually(t, "the late request is still in flight", func() bool { return pgstore.InFlight(b.s) == 0 })
	granted(t, b.other, request("late"))
}

func TestALateRequestIsNotGrantedAfterItWasRepeatedAndReleased(t *testing.T) {
	for _, keep := range []store.Keep{{}, {State: store.Cooling, For: time.Millisecond}} {
		b := newLateBed(t, 1)
		r := request(fmt.Sprint("late ", keep.State))
		b.delay(r)
		granted(t, b.s, r)
		if err := b.s.Release(t.Context(), r.Name, r.ID, keep); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * keep.For)
		b.arrive()
		granted(t, b.other, request(r.Name))
	}
}

func TestALateHeartbeatOfAWaiterDoesNotBringItBack(t *testing.T) {
	b := newLateBed(t, 1)
	holder := request("waiter")
	granted(t, b.other, holder)
	r := request("waiter")
	r.Queue = true
	refused(t, b.s, r)
	b.delay(r)
	if err := b.s.Leave(t.Context(), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	release(t, b.other, holder)
	b.arrive()
	granted(t, b.other, request("waiter"))
}

// Records of late requests expire after a minute, and the name is plain again.
func TestNotesOfLateRequestsEnd(t *testing.T) {
	b := newLateBed(t, 1)
	r := request("noted")
	b.delay(r)
	if err := b.s.Leave(t.Context(), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	b.arrive()
	if n := number(t, b.p, "SELECT count(*) FROM late.ended WHERE until BETWEEN late.now_us() + 50000000 AND late.now_us() + 60000000"); n != 1 {
		t.Errorf("%d notes for a minute, want one", n)
	}
	b.p.Must("UPDATE late.ended SET until = 0")
	r = request("noted")
	granted(t, b.other, r)
	release(t, b.other, r)
	if left := rows(t, b.p, lateSchema); left != nil {
		t.Errorf("left: %q", left)
	}
	if n := number(t, b.p, "SELECT count(*) FROM late.ended"); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// A renewal does not end a grant, even if the first request for it had no reply.
func TestAGrantWhoseFirstRequestIsLateCanBeAskedForAgainAfterARenewal(t *testing.T) {
	b := newLateBed(t, 1)
	r := request("renewed")
	r.Mode = store.Shared
	b.delay(r)
	first := granted(t, b.s, r)
	out, err := b.s.Renew(t.Context(), []store.Renewal{{Name: r.Name, ID: r.ID, Mode: r.Mode, TTL: r.TTL}})
	if err != nil || out[0].Status != store.Extended {
		t.Fatalf("Renew: %+v, %v", out, err)
	}
	if n := number(t, b.p, "SELECT count(*) FROM late.ended"); n != 0 {
		t.Errorf("%d notes of a grant that is alive", n)
	}
	if again := granted(t, b.s, r); again.Token != first.Token {
		t.Errorf("token %d, then %d", first.Token, again.Token)
	}
	b.arrive()
}

// A Release that is refused changes nothing.
func TestAGrantWhoseFirstRequestIsLateCanBeAskedForAgainAfterARefusedRelease(t *testing.T) {
	b := newLateBed(t, 1)
	r := request("kept")
	r.Mode = store.Shared
	b.delay(r)
	first := granted(t, b.s, r)
	if err := b.s.Release(t.Context(), r.Name, r.ID, store.Keep{State: store.Done, For: time.Minute}); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("Release: %v", err)
	}
	if again := granted(t, b.s, r); again.Token != first.Token {
		t.Errorf("token %d, then %d", first.Token, again.Token)
	}
	b.arrive()
}

// Records of late requests also expire on a name that is never free.
func TestNotesOfLateRequestsEndOnANameThatIsInUse(t *testing.T) {
	b := newLateBed(t, 1)
	holder := request("busy")
	holder.Mode = store.Shared
	granted(t, b.other, holder)
	b.p.Must("INSERT INTO late.ended SELECT 'busy', gen_random_uuid(), 1 FROM generate_series(1, 1000)")
	r := request("busy")
	b.delay(r)
	if err := b.s.Leave(t.Context(), r.Name, r.ID); err != nil {
		t.Fatal(err)
	}
	b.arrive()
	if n := number(t, b.p, "SELECT count(*) FROM late.ended"); n != 1 {
		t.Errorf("%d notes, want one", n)
	}
}

// Break ends only grants. A waiter keeps its place, even if its first request is late.
func TestAWaiterWhoseFirstRequestIsLateCannotBeBroken(t *testing.T) {
	b := newLateBed(t, 1)
	granted(t, b.other, request("waiter"))
	first := queued(t, b.s, "waiter") // listens from here on, through the proxy
	if err := b.s.Leave(t.Context(), first.Name, first.ID); err != nil {
		t.Fatal(err)
	}
	r := request("waiter")
	r.Queue = true
	b.delay(r)
	refused(t, b.s, r)
	if err := b.s.Break(t.Context(), r.Name, r.ID); !errors.Is(err, store.ErrNotHeld) {
		t.Fatalf("Break: %v", err)
	}
	b.arrive()
	if again := refused(t, b.s, r); again.Place != 1 {
		t.Errorf("place %d, want 1", again.Place)
	}
}

// The grant may be broken by any program, which does not know that a request of the holder has no reply.
// If that request were granted, the holder would renew its lease again, with a token below that of
// another holder.
func TestABrokenGrantIsNotGrantedByALateRequest(t *testing.T) {
	for _, who := range []string{"its own store", "another store"} {
		t.Run("broken by "+who, func(t *testing.T) {
			b := newLateBed(t, 1)
			r := request("broken by " + who)
			b.delay(r)
			granted(t, b.s, r)
			breaker := store.Store(b.s)
			if who == "another store" {
				breaker = b.other
			}
			if err := breaker.Break(t.Context(), r.Name, r.ID); err != nil {
				t.Fatal(err)
			}
			next := request("broken by " + who)
			granted(t, b.other, next)
			release(t, b.other, next)
			b.arrive()
			out, err := b.s.Renew(t.Context(), []store.Renewal{{Name: r.Name, ID: r.ID, Mode: r.Mode, TTL: r.TTL}})
			if err != nil || out[0].Status != store.Gone {
				t.Errorf("Renew: %+v, %v; want that the grant is gone", out, err)
			}
			granted(t, b.other, request("broken by "+who))
		})
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
		granted(t, b.other, r)
		renewals[i] = store.Renewal{Name: r.Name, ID: r.ID, Mode: r.Mode, TTL: r.TTL}
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
