package pgstore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
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

func TestRenewalsOfSingleGrantsShareStatements(t *testing.T) {
	var sent statements
	pool := poolWith(t, server(t).URL(), func(config *pgxpool.Config) {
		config.MaxConns, config.ConnConfig.Tracer = 1, &sent
	})
	s := newIn(t, pool)
	hold := func() func() {
		conn, err := pgstore.Pool(s).Acquire(t.Context())
		must(t, err)
		return conn.Release
	}
	const most = 4 // two alone, the others in batches of up to 64
	suites.RenewalsShare(t, s, most, hold,
		func() int { return pgstore.InFlight(s) }, func() int { return int(sent.n.Load()) })
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
