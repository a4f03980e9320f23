package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// execIn executes a statement in the session of a lane.
func execIn(t testing.TB, l *lane, statement string) {
	t.Helper()
	must(t, l.use(limited(t), func(ctx context.Context, c *conn) error {
		_, err := c.ExecContext(ctx, statement)
		return err
	}))
}

// setClock sets the clock of the sessions of a store.
func setClock(t testing.TB, s *Store, by time.Duration) {
	t.Helper()
	for _, l := range []*lane{s.takes, s.gives} {
		execIn(t, l, fmt.Sprintf("SET SESSION timestamp = UNIX_TIMESTAMP(SYSDATE(6)) + %f", by.Seconds()))
	}
}

// sweepThrice removes unused rows. The first sweep raises the floor, and the second may still find that a
// row was used lately.
func sweepThrice(t testing.TB, s *Store) {
	t.Helper()
	for i := range 3 {
		setClock(t, s, time.Duration(i+1)*2*sweepEvery)
		must(t, s.sweepNow(limited(t)))
	}
}

func countNames(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	scan(t, db, "SELECT COUNT(*) FROM holdfast_names", &n)
	return n
}

// Rows of released names are removed, and tokens still grow, even if the clock is set back.
func TestTokensGrowAfterRowsWereRemovedAndTheClockSetBack(t *testing.T) {
	db := connectTo(t, nil)
	s, old := newIn(t, db), newIn(t, db)
	req := request("n")
	req.Tokens = 1000
	first := granted(t, s, req)
	release(t, s, req)
	if n := countNames(t, db); n != 1 {
		t.Fatalf("%d rows after a release, want 1", n)
	}
	sweepThrice(t, s)
	if n := countNames(t, db); n != 0 {
		t.Fatalf("%d rows after the sweeps, want none", n)
	}
	setClock(t, old, -time.Hour)
	again := request("n")
	if second := granted(t, old, again); second.Token < first.Token+int64(first.Tokens) {
		t.Errorf("token %d after a block of %d from %d", second.Token, first.Tokens, first.Token)
	}
}

// If the clock is set back, the next sweep may run at once. A client may not have read the floor
// of the previous sweep yet.
func TestTokensGrowIfTheClockIsSetBackBetweenTwoSweeps(t *testing.T) {
	db := connectTo(t, nil)
	s, other := newIn(t, db), newIn(t, db)
	for _, one := range []*Store{s, other} {
		one.sweep.next = time.Now().Add(time.Hour) // it sweeps only when the test calls sweepNow
	}
	granted(t, other, request("reads the floor"))
	req := request("n")
	first := granted(t, s, req)
	release(t, s, req)
	for _, by := range []time.Duration{time.Millisecond, -time.Hour} {
		setClock(t, s, by)
		must(t, s.sweepNow(limited(t)))
	}
	setClock(t, other, -time.Hour)
	if second := granted(t, other, request("n")); second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
}

// A row whose tokens are ahead of the clock, because of a high floor, stays and does not raise
// the floor of other names.
func TestAHighFloorConcernsItsOwnNameOnly(t *testing.T) {
	db := connectTo(t, nil)
	s := newIn(t, db)
	high := request("high")
	high.Floor = store.MaxToken - 10
	granted(t, s, high)
	release(t, s, high)
	sweepThrice(t, s)
	if a := granted(t, s, request("other")); a.Token > store.MaxToken/2 {
		t.Errorf("another name has the token %d", a.Token)
	}
	next := request("high")
	next.Tokens = 100
	if a := granted(t, s, next); a.Token <= high.Floor+1 || a.Tokens > 9 {
		t.Errorf("tokens %d from %d", a.Tokens, a.Token)
	}
	release(t, s, next)
	if _, err := s.Acquire(limited(t), request("high")); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("without tokens: %v, want ErrInvalid", err)
	}
}

// A session that hangs after it has added or removed names stops calls on these names and no
// others.
func TestASessionThatHangsWithNamesAddedOrRemovedStopsNoOtherNames(t *testing.T) {
	db := connectTo(t, nil)
	s := newIn(t, db)
	mustExec(t, db, "INSERT INTO holdfast_names (name, last) VALUES ('new1', 1)")
	tx, err := db.BeginTx(limited(t), nil)
	must(t, err)
	defer tx.Rollback()
	mustExec(t, tx, "INSERT INTO holdfast_names (name, last) VALUES ('new0', 1)",
		"DELETE FROM holdfast_names WHERE name = 'new1'")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			begin := time.Now()
			_, err := s.Acquire(limited(t), request(fmt.Sprint("new", i)))
			if (err != nil) != (i < 2) {
				t.Errorf("new%d after %v: %v", i, time.Since(begin), err)
			}
		})
	}
	wg.Wait()
}

// A backup that locks the tables stops calls that write. The calls fail in time with an error
// that says why, and are not executed later.
func TestTablesLockedByABackup(t *testing.T) {
	for _, lock := range []string{"LOCK TABLES holdfast_names READ, holdfast_claims READ, holdfast_meta READ", "FLUSH TABLES WITH READ LOCK"} {
		t.Run(lock[:4], func(t *testing.T) {
			db := connectTo(t, nil)
			s := newIn(t, db)
			held, waits := request("held"), queued("held")
			granted(t, s, held)
			backup, err := db.Conn(limited(t))
			must(t, err)
			defer backup.Close()
			mustExec(t, backup, lock)
			defer backup.ExecContext(limited(t), "UNLOCK TABLES")
			for what, call := range map[string]func() error{
				"Acquire":         func() error { _, err := s.Acquire(limited(t), request("new")); return err },
				"Acquire, queued": func() error { _, err := s.Acquire(limited(t), waits); return err },
				"Release":         func() error { return s.Release(limited(t), held.Name, held.ID, store.Keep{}) },
			} {
				begin := time.Now()
				err := call()
				if took := time.Since(begin); err == nil || !strings.Contains(err.Error(), "locked the row of this name, or the tables") || took >= callTimeout {
					t.Errorf("%s: %v after %v, want an error that says why", what, err, took)
				}
			}
			mustExec(t, backup, "UNLOCK TABLES")
			if got := refused(t, s, request("held")); got.Waiters != 0 {
				t.Errorf("%d waiters, want none", got.Waiters)
			}
			granted(t, s, request("new"))
		})
	}
}

// A time limit for statements must not hide that a row is locked. Otherwise the other names would
// have to wait for it.
func TestALimitForStatementsDoesNotMatter(t *testing.T) {
	db := connectTo(t, func(c *mysql.Config) { c.Params = map[string]string{"max_statement_time": "0.3"} })
	s := newIn(t, db)
	locked, other := request("locked"), request("other")
	granted(t, s, locked)
	granted(t, s, other)
	lockRow(t, db, "locked")
	out, err := s.Renew(limited(t), []store.Renewal{renewal(locked), renewal(other)})
	if err != nil || out[0].Status != store.Unknown || out[1].Status != store.Extended {
		t.Fatalf("Renew of a name that is locked and another: %+v, %v", out, err)
	}
	if err := out[0].Err; err == nil || !strings.Contains(err.Error(), "max_statement_time is too short") {
		t.Errorf("the name that is locked: %v, want an error that says what to do", err)
	}
}

// A client that is stopped within a transaction, by a debugger or a frozen machine, keeps rows
// locked. The server ends its connection.
func TestAClientStoppedWithinATransactionIsEndedByTheServer(t *testing.T) {
	db := connectTo(t, nil)
	s, frozen := newIn(t, db), newIn(t, db)
	suites.TokenOf(t, s, "n") // so that there is a row
	err := frozen.takes.use(limited(t), func(ctx context.Context, c *conn) error {
		var seconds float64
		if err := c.QueryRowContext(ctx, "SELECT @@wait_timeout").Scan(&seconds); err != nil || seconds != serverIdle.Seconds() {
			t.Errorf("wait_timeout %v, want %v; %v", seconds, serverIdle, err)
		}
		for _, statement := range []string{"SET SESSION wait_timeout = 2", "BEGIN"} { // the test need not wait for 20 s
			if _, err := c.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		tx := &transaction{s: frozen, c: c, entries: make(map[string]*entry)}
		return tx.load(ctx, fmt.Sprintf(s.sql.lock, literal("n")))
	})
	must(t, err)
	if _, err := s.Acquire(limited(t), request("n")); err == nil {
		t.Fatal("the row is not locked")
	}
	begin := time.Now()
	eventually(t, "the name can be granted", func() bool {
		_, err := s.Acquire(limited(t), request("n"))
		return err == nil
	})
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("after %v", took)
	}
}
