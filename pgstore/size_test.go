package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func number(t testing.TB, p *servers.Postgres, query string) int {
	t.Helper()
	n, err := strconv.Atoi(p.Value(query))
	must(t, err)
	return n
}

// Many clients lock many names, and update a fenced row under each.
func TestManyClientsLoseNoUpdateAndSeeNoDeadlock(t *testing.T) {
	clients, names, d := 16, 50, 4*time.Second
	if *long > 0 {
		clients, names, d = 64, 200, *long
	}
	p := servers.StartPostgres(t, servers.PostgresOptions{NoSync: *long == 0, Config: []string{"max_connections=300", "autovacuum_naptime=5s"}})
	var all []*holdfast.Client
	for range clients {
		all = append(all, client(t, open(t, p.URL()+"&pool_max_conns=2")))
	}
	db, err := sql.Open("pgx", p.URL())
	must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(16)
	done := suites.Updates(t, db, sqlfence.PostgreSQL("public"), all, names, d)
	if n := number(t, p, "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	size := number(t, p, "SELECT pg_total_relation_size('holdfast.names') + pg_total_relation_size('holdfast.waiters') + pg_total_relation_size('holdfast.holders')")
	dead := number(t, p, "SELECT sum(n_dead_tup) FROM pg_stat_user_tables WHERE schemaname = 'holdfast'")
	t.Logf("%d pairs; the tables have %d KiB and %d dead tuples; of the updates %s%% were HOT", done, size>>10, dead,
		p.Value("SELECT (100 * sum(n_tup_hot_upd) / greatest(sum(n_tup_upd), 1))::int FROM pg_stat_user_tables WHERE relname = 'names'"))
	if size > 4<<20 {
		t.Errorf("the tables have %d bytes", size)
	}
}

// Rows of names that are no longer used are removed along with other calls, and their tokens
// still grow.
func TestUnusedNamesAreRemovedAndTheirTokensGrow(t *testing.T) {
	p := server(t)
	s := open(t, p.URL()+"&schema=unused")
	ahead := request("name0")
	ahead.Floor = time.Now().Add(time.Hour).UnixMicro() // as if the clock had been set back since
	before := granted(t, s, ahead).Token
	release(t, s, ahead)
	for i := 1; i < 500; i++ {
		pair(t, s, fmt.Sprint("name", i))
	}
	p.Must("UPDATE unused.names SET used = used - 10000000") // as if some seconds had passed
	eventually(t, "rows of unused names are left", func() bool {
		for i := range 200 {
			pair(t, s, fmt.Sprint("busy", i))
		}
		p.Must("UPDATE unused.names SET used = used - 10000000 WHERE name LIKE 'busy%'")
		return number(t, p, "SELECT count(*) FROM unused.names WHERE name LIKE 'name%'") == 0
	})
	if n := number(t, p, "SELECT count(*) FROM unused.names"); n > 500 {
		t.Errorf("%d rows although nothing is held", n)
	}
	if after := pair(t, s, "name0"); after <= before {
		t.Errorf("token %d after the row was removed, before it was %d", after, before)
	}
}

// A program that locks once in a while removes the rows that another one left, within a minute.
func TestManyUnusedRowsAreRemovedByFewCalls(t *testing.T) {
	p := server(t)
	s := open(t, p.URL()+"&schema=leftovers")
	const n = 10_000
	p.Must(fmt.Sprintf("INSERT INTO leftovers.names (name, highest, used, crowd) SELECT 'left' || i, 0, 0, i %% 100 = 0 FROM generate_series(1, %d) i", n))
	calls := 0
	eventually(t, "rows of unused names are left", func() bool {
		time.Sleep(100 * time.Millisecond) // the pause between two sweeps
		pair(t, s, "n")
		calls += 2
		return number(t, p, "SELECT count(*) FROM leftovers.names WHERE name LIKE 'left%' AND used = 0") == 0
	})
	if calls > n/200 {
		t.Errorf("%d rows were removed by %d calls", n, calls)
	}
	if left := number(t, p, "SELECT count(*) FROM leftovers.names WHERE name LIKE 'left%' AND crowd"); left > 0 {
		t.Errorf("%d rows look as if there were other holders or waiters", left)
	}
}

// A call adds a row, and meanwhile another client has added the same row, used it and swept it. The
// floor that the call read first is too low then.
func TestATokenIsAboveTheFloorThatWasRaisedDuringTheCall(t *testing.T) {
	p := server(t)
	s := openStore(t, p.URL())
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		r := request("name of mode " + mode.String())
		r.Mode = mode
		eventually(t, "the call waits for too long", func() bool {
			ahead := time.Now().Add(time.Hour).UnixMicro()
			conn := connect(t, p.URL())
			exec(t, conn, fmt.Sprintf("BEGIN; INSERT INTO holdfast.names (name, highest, used) VALUES ('%s', %d, 0)",
				r.Name, ahead))
			var answer store.Answer
			done := make(chan error, 1)
			go func() {
				var err error
				answer, err = s.Acquire(context.Background(), r)
				done <- err
			}()
			eventually(t, "the call does not wait", func() bool {
				return len(done) > 0 || number(t, p, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") > 0
			})
			exec(t, conn, "DELETE FROM holdfast.names WHERE name = '"+r.Name+"'")
			exec(t, conn, fmt.Sprintf("UPDATE holdfast.meta SET floor = %d; COMMIT", ahead))
			err := <-done
			if err == nil && answer.Token <= ahead {
				t.Errorf("%v: token %d after %d", mode, answer.Token, ahead)
			}
			return err == nil
		})
	}
}

// A row whose tokens are far ahead of the clock, because of a high floor, stays and does not
// raise the floor of other names.
func TestAHighFloorConcernsItsOwnNameOnly(t *testing.T) {
	p := server(t)
	s := open(t, p.URL()+"&schema=high")
	high := request("high")
	high.Floor = store.MaxToken - 10
	granted(t, s, high)
	release(t, s, high)
	for i := range 100 { // twice as many as the names that make a sweep start early
		p.Must("UPDATE high.names SET used = used - 10000000") // as if some seconds had passed
		if token := pair(t, s, fmt.Sprint("other", i)); token > store.MaxToken/2 {
			t.Fatalf("name %d has the token %d", i, token)
		}
	}
	if n := number(t, p, "SELECT count(*) FROM high.names WHERE name LIKE 'other%'"); n > 90 {
		t.Fatalf("%d rows of other names are left: there was no sweep", n)
	}
	if a := granted(t, s, request("high")); a.Token <= high.Floor+1 {
		t.Errorf("token %d, not above the one before", a.Token)
	}
}

// Calls find their rows by an index, even if the server made its plans while the tables were
// short. Such a plan is kept while a table grows, and each call would read all names.
func TestNoCallReadsAWholeTable(t *testing.T) {
	p := server(t)
	url := p.URL() + "&schema=scans&pool_max_conns=1"
	const scans = "SELECT coalesce(sum(seq_scan), 0) FROM pg_stat_user_tables WHERE schemaname = 'scans'"
	open(t, url).Close() // creates the tables and scans them; the server counts that when its process ends, at the latest
	eventually(t, "the creation is not counted", func() bool { return number(t, p, scans) > 0 })
	before := number(t, p, scans)
	p.Must("VACUUM ANALYZE") // the server now knows how short the tables are
	s := open(t, url)
	ctx := t.Context()
	for i := range 20 { // a plan of a prepared statement is kept after a few times
		name := fmt.Sprint("name", i%3)
		r := request(name)
		granted(t, s, r)
		waiter := suites.Queued(name)
		refused(t, s, waiter)
		extended(t, s, store.Renewal{Name: name, ID: r.ID, TTL: r.TTL, Mode: store.Exclusive, Tokens: i % 2})
		if _, err := s.List(ctx, store.Query{}); err != nil {
			t.Fatal(err)
		}
		leave(t, s, waiter)
		release(t, s, r)
		shared := request(name)
		shared.Mode = store.Shared
		granted(t, s, shared)
		must(t, s.Break(ctx, name, shared.ID))
		var wg sync.WaitGroup
		for k := range 10 { // these calls share statements, which also sweep
			wg.Go(func() {
				r := request(fmt.Sprint("other", i, "/", k))
				granted(t, s, r)
				if err := s.Release(ctx, r.Name, r.ID, store.Keep{State: store.Cooling, For: time.Millisecond}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// As if some seconds had passed, and there had been other holders or waiters.
		p.Must("SET enable_seqscan = off; UPDATE scans.names SET used = used - 10000000, crowd = true WHERE name >= 'other' AND NOT crowd")
	}
	s.Close()
	eventually(t, "the calls are not counted", func() bool {
		return number(t, p, "SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables WHERE schemaname = 'scans'") > 20
	})
	if n := number(t, p, scans) - before; n != 0 {
		t.Errorf("%d scans of whole tables: %v", n,
			p.Must("SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'scans' AND seq_scan > 0"))
	}
}
