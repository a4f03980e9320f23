package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// statements counts the statements of a pool.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}

func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A client renews a contended name before it hands it over. If each of these renewals needed a
// statement of its own, those of a busy client would delay the renewals of its other leases.
func TestRenewalsOfSingleGrantsShareStatements(t *testing.T) {
	var sent statements
	pool := poolWith(t, server(t).URL(), func(config *pgxpool.Config) {
		config.MaxConns, config.ConnConfig.Tracer = 1, &sent
	})
	s := newIn(t, pool)
	const n = 100
	var grants []store.Renewal
	for i := range n {
		r := request(fmt.Sprint("renewed", i))
		granted(t, s, r)
		grants = append(grants, store.Renewal{Name: r.Name, ID: r.ID, TTL: r.TTL, Mode: r.Mode, Tokens: 10})
	}
	conn, err := pgstore.Pool(s).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var wg sync.WaitGroup
	for _, g := range grants {
		wg.Go(func() {
			out, err := s.Renew(t.Context(), []store.Renewal{g})
			if err != nil || out[0].Status != store.Extended || out[0].Tokens != 10 {
				t.Errorf("%s: %+v, %v", g.Name, out, err)
			}
		})
	}
	eventually(t, "all renewals are queued", func() bool { return pgstore.InFlight(s) == n })
	before := sent.n.Load()
	conn.Release()
	wg.Wait()
	if after := sent.n.Load(); after-before > 4 { // two alone, the others in batches of up to 64
		t.Errorf("%d statements for %d renewals", after-before, n)
	}
}

// A statement waits for all of its names. So renewals share statements with each other only.
func TestARenewalDoesNotWaitForANameThatOthersWaitFor(t *testing.T) {
	p := server(t)
	s := open(t, p.URL()+"&pool_max_conns=16")
	held := request("held")
	granted(t, s, held)
	granted(t, s, request("blocked"))
	lockRow(t, p.URL(), "blocked")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 8 {
		wg.Go(func() { s.Acquire(ctx, request("blocked")) })
	}
	for range 20 {
		wg.Go(func() { s.Acquire(ctx, request("blocked")) })
		soon, stop := context.WithTimeout(t.Context(), time.Second)
		out, err := s.Renew(soon, []store.Renewal{renewal(held)})
		stop()
		if err != nil || out[0].Status != store.Extended {
			t.Fatalf("a renewal while another name is blocked: %+v, %v", out, err)
		}
	}
}
