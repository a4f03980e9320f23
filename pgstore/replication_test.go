package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A program may let pgx cancel statements whose context has ended. If the statement waits for a
// synchronous standby, the server ends that wait and reports success, although the standby does not
// have the commit. A failover would then lose a grant that its holder believes in.
func TestASuccessAfterTheDeadlineIsNotBelieved(t *testing.T) {
	t.Parallel()
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	pool := poolWith(t, p.URL(), func(config *pgxpool.Config) {
		config.MaxConns = 8
		config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: patience}
		}
	})
	s := newIn(t, pool)
	var held []store.Request
	var renewals []store.Renewal
	for i := range 4 {
		r := request(fmt.Sprint("held", i))
		granted(t, s, r)
		held = append(held, r)
		renewals = append(renewals, renewal(r))
	}
	replica := p.StartReplica(t)
	configure(t, p, "synchronous_standby_names", "replica")
	eventually(t, "the standby is not synchronous", func() bool {
		return p.Value("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
	})
	replica.Kill()

	const limit = 300 * time.Millisecond
	renew := func(ctx context.Context, renewals []store.Renewal) error {
		out, err := s.Renew(ctx, renewals)
		for _, o := range out {
			err = errors.Join(err, o.Err)
		}
		return err
	}
	kept := func(ctx context.Context) error {
		return s.Release(ctx, held[3].Name, held[3].ID, store.Keep{State: store.Done, For: time.Hour})
	}
	acquire := func(ctx context.Context, name string) error {
		_, err := s.Acquire(ctx, request(name))
		return err
	}
	for what, call := range map[string]func(ctx context.Context) error{
		"Acquire":    func(ctx context.Context) error { return acquire(ctx, "a") },
		"Renew":      func(ctx context.Context) error { return renew(ctx, renewals[:1]) },
		"Renew many": func(ctx context.Context) error { return renew(ctx, renewals[1:3]) },
		"Release with Keep, twice": func(ctx context.Context) error {
			if err := kept(ctx); err == nil {
				return nil
			}
			again, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := kept(again)
			if errors.Is(err, store.ErrNotHeld) { // the caller then looks for the record
				return nil
			}
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		if err := call(ctx); err == nil {
			t.Errorf("%s: got a reply, and the standby does not have the commit", what)
		}
		cancel()
	}
	names := []string{"a"}
	var wg sync.WaitGroup
	for i := range 8 { // with the time limit of the store, alone and in batches
		name := fmt.Sprint("own limit", i)
		names = append(names, name)
		wg.Go(func() {
			if err := acquire(context.Background(), name); err == nil {
				t.Errorf("Acquire %q succeeded, and the standby does not have the commit", name)
			}
		})
	}
	wg.Wait()
	p.Kill()
	replica.Restart()
	replica.Promote()
	other := open(t, replica.URL())
	for _, name := range names {
		granted(t, other, request(name))
	}
	page, err := other.List(t.Context(), store.Query{Name: held[3].Name})
	if err != nil || len(page.Locks) != 1 || page.Locks[0].Holders[0].State != store.Held {
		t.Errorf("the new primary has %+v, %v; want the grant without the record", page, err)
	}
}
