package mysqlstore

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// lockRow locks the rows of names, as a client that hangs within a transaction.
func lockRow(t testing.TB, db *sql.DB, names ...string) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(limited(t), nil)
	must(t, err)
	t.Cleanup(func() { tx.Rollback() })
	for _, name := range names {
		mustExec(t, tx, "SELECT * FROM holdfast_names WHERE name = "+literal(name)+" FOR UPDATE")
	}
	return tx
}

// lockRows locks the rows of names for the suites.
func lockRows(t testing.TB, db *sql.DB) func(names ...string) (unlock func()) {
	return func(names ...string) func() {
		tx := lockRow(t, db, names...)
		return func() { tx.Rollback() }
	}
}

func TestLockedRowsHoldUpTheirNamesOnly(t *testing.T) {
	t.Run("calls", func(t *testing.T) {
		db := connectTo(t, nil)
		suites.StuckNames(t, newIn(t, db), 300, lockRows(t, db)) // if each of them waits for a stuck name, there are about 150
	})
	t.Run("leases", func(t *testing.T) {
		db := connectTo(t, nil)
		suites.StuckLease(t, newIn(t, db), 4*time.Second, lockRows(t, db))
	})
	t.Run("renewals", func(t *testing.T) {
		db := connectTo(t, nil)
		suites.StuckRenewals(t, newIn(t, db), lockRows(t, db))
	})
}

// A row that many clients use is locked nearly all the time. A client that has once waited for it in vain,
// because the machine was busy or another client hung for a moment, must wait for it again to get its turn.
func TestALockedRowIsWaitedForAgain(t *testing.T) {
	t.Parallel()
	db := connectTo(t, nil)
	s := newIn(t, db)
	held := request("n")
	granted(t, s, held)
	lockRow(t, db, "n")
	waits := 0
	eventually(t, "the row was waited for once only", func() bool {
		begin := time.Now()
		if out, err := s.Renew(limited(t), []store.Renewal{renewal(held)}); err == nil {
			t.Fatalf("renewed although the row is locked: %+v", out)
		}
		if time.Since(begin) >= rowPatience*time.Second {
			waits++
		}
		return waits == 2
	})
}

// The row of a name that many clients try to take would be locked nearly all the time, and the renewals of
// its holder would wait for them.
func TestARefusedRequestMakesNoTransaction(t *testing.T) {
	t.Parallel()
	db := connectTo(t, nil)
	holder, s := newIn(t, db), newIn(t, db)
	granted(t, holder, request("n"))
	refused(t, holder, queued("n"))
	count := func() int { return begun(t, s.takes) }
	shared := request("n")
	shared.Mode = store.Shared
	for _, r := range []store.Request{request("n"), shared} {
		if answer := refused(t, s, r); len(answer.Holders) != 1 || answer.Waiters != 1 || count() != 0 {
			t.Errorf("%s: %+v, %d transactions", r.Mode, answer, count())
		}
	}
	if refused(t, s, queued("n")); count() != 1 {
		t.Errorf("%d transactions of a request that is queued, want 1", count())
	}
}

// Claims of one name that another session has locked do not hold up another name, even if most claims
// are removed at once, so that the server would rather read the whole table.
func TestLockedClaimsHoldUpTheirNameOnly(t *testing.T) {
	t.Parallel()
	db := connectTo(t, nil)
	holder, s := newIn(t, db), newIn(t, db)
	var holding, last store.Request
	for _, name := range []string{"stuck", "other"} {
		holding = request(name)
		granted(t, holder, holding)
		for range 12 {
			last = queued(name)
			refused(t, s, last)
		}
	}
	lock := lockRow(t, db, "stuck")
	mustExec(t, lock, "UPDATE holdfast_claims SET rung = 1 WHERE name = 'stuck'")
	mustExec(t, db, "UPDATE holdfast_claims SET until = since + 1 WHERE name = 'other' AND seq < 12")
	release(t, holder, holding)
	granted(t, s, last)
}

// Claims that another session has locked, without the row of their name, fail the calls on that name.
// Calls on other names that share a statement or a transaction with them do not fail, and only the
// first ones wait.
func TestLockedClaimsFailCallsOnTheirNameOnly(t *testing.T) {
	t.Parallel()
	db := connectTo(t, nil)
	holder, s := newIn(t, db), newIn(t, db)
	names := []string{"other", "stuck"}
	holding, waiting := make(map[string]store.Request), make(map[string]store.Request)
	for _, name := range names {
		holding[name], waiting[name] = request(name), queued(name)
		granted(t, holder, holding[name])
		refused(t, s, waiting[name])
	}
	lock, err := db.BeginTx(limited(t), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	must(t, err)
	defer lock.Rollback()
	mustExec(t, lock, "SELECT * FROM holdfast_claims WHERE name = 'stuck' FOR UPDATE")
	send := func(what string, l *lane, waits bool, callOf func(name string) *call) {
		t.Helper()
		var calls []*call
		for _, name := range names {
			calls = append(calls, callOf(name))
		}
		begin := time.Now()
		l.send(limited(t), slices.Clone(calls))
		if took := time.Since(begin); (took >= rowPatience*time.Second) != waits {
			t.Errorf("%s took %v", what, took)
		}
		if other, stuck := calls[0].err, calls[1].err; other != nil || !isLocked(stuck) {
			t.Errorf("%s: %q has the error %v, and %q, whose claims are locked: %v", what, names[0], other, names[1], stuck)
		}
	}
	stay := func(name string) *call {
		req := waiting[name]
		return &call{
			name: name, req: &req, stay: true,
			do: func(e *entry) error { _, err := e.ask(&req); return err },
		}
	}
	send("waiters that keep their places", s.takes, true, stay)
	send("the same again", s.takes, false, stay)
	send("a release that wakes a waiter", holder.gives, true, func(name string) *call {
		return releaseCall(name, holding[name].ID, store.Keep{})
	})
	must(t, lock.Rollback())
	release(t, holder, holding["stuck"])
	for _, name := range names {
		granted(t, s, waiting[name])
	}
}

// A statement on some names does not wait for the row of another one, even if they are most of the
// table, and a sweep does not wait for any row.
func TestARowThatIsLockedDelaysNoStatementOnOtherNames(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	const names = 20
	held := make([]store.Request, names)
	renewAll := func(t *testing.T, s *Store) {
		renewals := make([]store.Renewal, names)
		for i, r := range held {
			renewals[i] = renewal(r)
		}
		extended(t, s, renewals...)
	}
	for what, test := range map[string]struct {
		lock string
		do   func(t *testing.T, s *Store)
	}{
		"renew":                                {"stuck", renewAll},
		"sweep, a name in use is locked":       {"stuck", nil},
		"sweep, an unused name is locked":      {"unused 7", nil},
		"sweep, a name with waiters is locked": {"crowded", nil},
		"release": {"stuck", func(t *testing.T, s *Store) {
			var calls []*call
			for _, r := range held {
				calls = append(calls, releaseCall(r.Name, r.ID, store.Keep{}))
			}
			s.gives.send(limited(t), calls)
			for _, c := range calls {
				if c.err != nil {
					t.Errorf("release %q: %v", c.name, c.err)
				}
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			db := poolAt(t, server, nil)
			s := newIn(t, db)
			s.sweep.next = time.Now().Add(time.Hour) // it sweeps only when the test calls sweepNow
			mustExec(t, db, "DELETE FROM holdfast_names", "DELETE FROM holdfast_claims", "UPDATE holdfast_meta SET low = 1000, swept = 0")
			granted(t, s, request("stuck"))
			granted(t, s, request("crowded"))
			refused(t, s, queued("crowded"))
			for i := range held {
				if test.do != nil {
					held[i] = request(fmt.Sprint("held ", i))
					granted(t, s, held[i])
				} else {
					mustExec(t, db, fmt.Sprintf("INSERT INTO holdfast_names (name, last) VALUES ('unused %d', 1)", i))
				}
			}
			lockRow(t, db, test.lock)
			var before, after int // how often sessions of the server have waited for a row
			scan(t, db, "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'", new(string), &before)
			left := 2 // stuck and crowded
			if test.do != nil {
				test.do(t, s)
				left += names
			} else if err := s.sweepNow(limited(t)); err != nil {
				t.Error(err)
			}
			if strings.HasPrefix(test.lock, "unused") {
				left++
			}
			if scan(t, db, "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'", new(string), &after); after != before {
				t.Errorf("waited for a row %d times", after-before)
			}
			if n := countNames(t, db); n != left {
				t.Errorf("%d rows are left, want %d", n, left)
			}
		})
	}
}

// A program may hold its locks for months, and take no others.
func TestAProgramThatOnlyRenewsSweeps(t *testing.T) {
	db := connectTo(t, nil)
	s := newIn(t, db)
	r := request("n")
	granted(t, s, r)
	eventually(t, "the sweep of Acquire has ended", func() bool {
		var swept int64
		scan(t, db, "SELECT swept FROM holdfast_meta", &swept)
		return swept > 0
	})
	s.sweep.mu.Lock()
	s.sweep.next = time.Time{} // as after ten seconds
	s.sweep.mu.Unlock()
	mustExec(t, db, "UPDATE holdfast_meta SET low = 1000, swept = 0", "INSERT INTO holdfast_names (name, last) VALUES ('unused', 1)")
	extended(t, s, renewal(r))
	eventually(t, "the unused row is removed", func() bool { return countNames(t, db) == 1 })
}

// Programs that end soon after their first call remove unused rows, too. Otherwise the rows of all
// names that they have used would stay if no other program runs.
func TestAProgramThatEndsSoonSweeps(t *testing.T) {
	db := connectTo(t, nil)
	newIn(t, db).Close() // creates the tables
	swept := 0           // on a busy machine, the time that Close waits may be too short
	for i := range 9 {
		mustExec(t, db, "UPDATE holdfast_meta SET low = 1000, swept = 0", // as ten seconds after the last sweep
			"DELETE FROM holdfast_names", "INSERT INTO holdfast_names (name, last) VALUES ('unused', 1)")
		s := newIn(t, db)
		granted(t, s, request(fmt.Sprint("n", i)))
		must(t, s.Close())
		if countNames(t, db) == 1 { // that of the lock only
			swept++
		}
	}
	if swept < 5 {
		t.Errorf("%d of 9 programs removed a row that is not in use", swept)
	}
}

// A waiter that only keeps its place does not need the row of its name.
func TestAWaiterOfAStuckNameKeepsItsPlace(t *testing.T) {
	db := connectTo(t, nil)
	s := newIn(t, db)
	granted(t, s, request("n"))
	w := queued("n")
	refused(t, s, w)
	tx := lockRow(t, db, "n")
	if _, err := s.Acquire(limited(t), request("n")); !isLocked(err) {
		t.Fatalf("a call that needs the row: %v", err)
	}
	if r := refused(t, s, w); r.Place != 1 {
		t.Errorf("place %d, want 1", r.Place)
	}
	begin := time.Now()
	if _, err := s.Acquire(limited(t), request("n")); !isLocked(err) || time.Since(begin) >= rowPatience*time.Second {
		t.Errorf("a later call that needs the row: %v after %v", err, time.Since(begin))
	}
	must(t, tx.Rollback())
	refused(t, s, request("n"))
}
