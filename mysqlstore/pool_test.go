package mysqlstore

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func TestConnectionsThatAreNotInUseAreClosed(t *testing.T) {
	t.Parallel()
	db := connectTo(t, nil)
	s := newIn(t, db)
	r := request("n")
	granted(t, s, r)
	extended(t, s, renewal(r))
	if n := db.Stats().InUse; n != 2 {
		t.Errorf("%d connections are in use, want 2", n)
	}
	for _, l := range []*lane{s.takes, s.gives} {
		l.idle.Reset(0) // instead of clientIdle
	}
	eventually(t, "the connections are closed", func() bool { return db.Stats().InUse == 0 })
	release(t, s, r)
}

func databaseOf(t testing.TB, db *sql.DB) (name string) {
	t.Helper()
	scan(t, db, "SELECT DATABASE()", &name)
	return name
}

// A store keeps its connections while it uses them, so that an application that takes all others
// cannot make it lose its leases.
func TestLeasesAreRenewedWhileTheApplicationUsesAllOtherConnections(t *testing.T) {
	db := connectTo(t, nil)
	db.SetMaxOpenConns(5)
	c := suites.Client(t, newIn(t, db), holdfast.WithTTL(time.Second))
	lease, err := c.Lock(t.Context(), "busy")
	must(t, err)
	time.Sleep(time.Second) // until it has been renewed
	for db.Stats().InUse < 5 {
		conn, err := db.Conn(limited(t))
		must(t, err)
		defer conn.Close()
	}
	time.Sleep(3 * time.Second)
	if err := lease.Err(); err != nil {
		t.Errorf("lost: %v", err)
	}
	if err := lease.Unlock(limited(t)); err != nil {
		t.Error(err)
	}
}

// The application's connections keep their settings, and the settings do not affect the store.
func TestSettingsOfThePoolDoNotMatter(t *testing.T) {
	for what, change := range map[string]func(*mysql.Config){
		"repeatable read": func(c *mysql.Config) { c.Params = map[string]string{"tx_isolation": "'REPEATABLE-READ'"} },
		"latin1": func(c *mysql.Config) {
			c.Params = map[string]string{"character_set_connection": "latin1", "character_set_client": "gbk"}
		},
		"sql_mode": func(c *mysql.Config) {
			c.Params = map[string]string{"sql_mode": "'ANSI,NO_BACKSLASH_ESCAPES,SIMULTANEOUS_ASSIGNMENT,NO_UNSIGNED_SUBTRACTION,PIPES_AS_CONCAT'"}
		},
		"time zone":      func(c *mysql.Config) { c.Params = map[string]string{"time_zone": "'-11:00'"}; c.ParseTime = true },
		"autocommit off": func(c *mysql.Config) { c.Params = map[string]string{"autocommit": "0"} },
		// These truncate results, leave transactions open or forbid writes.
		"select limit": func(c *mysql.Config) { c.Params = map[string]string{"sql_select_limit": "1"} },
		"big selects":  func(c *mysql.Config) { c.Params = map[string]string{"sql_big_selects": "0", "max_join_size": "1"} },
		"read only":    func(c *mysql.Config) { c.Params = map[string]string{"tx_read_only": "1"} },
		"commit chain": func(c *mysql.Config) { c.Params = map[string]string{"completion_type": "1"} },
		"safe updates": func(c *mysql.Config) { c.Params = map[string]string{"sql_safe_updates": "1"} },
	} {
		t.Run(what, func(t *testing.T) {
			plain := connectTo(t, nil)
			other := newIn(t, plain) // creates the tables
			db := poolOf(t, databaseOf(t, plain), change)
			s := newIn(t, db)
			useEverything(t, s)
			permit := func() store.Request {
				r := request("permits")
				r.Mode, r.Limit = store.Permits, 3
				return r
			}
			for range 3 {
				granted(t, s, permit())
			}
			refused(t, s, permit())
			free := request("free") // after a transaction on another name
			granted(t, s, free)
			refused(t, other, request("free"))
			release(t, s, free)
			granted(t, other, request("free"))
			for _, name := range awkward {
				req := request(name)
				req.Owner, req.Meta = name, name
				first := granted(t, s, req)
				if again := granted(t, s, req); again.Token != first.Token {
					t.Errorf("%q: the same request has the tokens %d and %d", name, first.Token, again.Token)
				}
				r := refused(t, s, request(name))
				if h := r.Holders[0]; h.ID != req.ID || h.Owner != name || h.Meta != name || h.Left > time.Minute || h.Left < 50*time.Second {
					t.Errorf("%q: held by %+v", name, h)
				}
				page, err := s.List(limited(t), store.Query{Prefix: name})
				if err != nil || len(page.Locks) != 1 || page.Locks[0].Name != name {
					t.Errorf("%q: List: %+v, %v", name, page, err)
				}
				release(t, s, req)
				if err := s.Release(limited(t), name, req.ID, store.Keep{}); err != store.ErrNotHeld {
					t.Errorf("%q: second Release: %v", name, err)
				}
			}
			s.Close()
			if n := db.Stats().InUse; n != 0 {
				t.Errorf("%d connections are in use after Close", n)
			}
			var isolation string
			scan(t, db, "SELECT @@tx_isolation", &isolation)
			if isolation == "READ-COMMITTED" {
				t.Error("a connection went back to the pool with the settings of the store")
			}
		})
	}
}

// The tables are created and checked in a session of the store, so that they are complete for
// everybody when New and Migrate return.
func TestTablesAreCreatedWithAutocommitOff(t *testing.T) {
	for what, create := range map[string]func(db *sql.DB) error{
		"New": func(db *sql.DB) error {
			s, err := New(db)
			if err == nil {
				defer s.Close()
				granted(t, s, request("n"))
			}
			return err
		},
		"Migrate": func(db *sql.DB) error { return Migrate(limited(t), db, "") },
	} {
		t.Run(what, func(t *testing.T) {
			db := connectTo(t, func(c *mysql.Config) { c.Params = map[string]string{"autocommit": "0"} })
			db.SetMaxIdleConns(-1) // otherwise the store could use the connection that has created the tables
			must(t, create(db))
			s := newIn(t, poolOf(t, databaseOf(t, db), nil), NoCreate())
			if r := request("n"); what == "New" {
				refused(t, s, r)
			} else {
				granted(t, s, r)
			}
		})
	}
}

// The application may change the current database of its connections.
func TestAStoreStaysInTheDatabaseOfNew(t *testing.T) {
	db, elsewhere := connectTo(t, nil), connectTo(t, nil)
	newIn(t, elsewhere) // the tables are there as well
	s := newIn(t, db)
	other := newIn(t, poolOf(t, databaseOf(t, db), nil))
	held := request("n")
	granted(t, other, held)
	conns := make([]*sql.Conn, 2)
	for i := range conns {
		var err error
		conns[i], err = db.Conn(limited(t))
		must(t, err)
		mustExec(t, conns[i], "USE "+databaseOf(t, elsewhere))
	}
	for _, c := range conns {
		c.Close() // returns it to the pool
	}
	refused(t, s, request("n"))
	extended(t, s, renewal(held))
	identity := func(s *Store) string {
		return diagnosistest.Find(t, s.Diagnose(limited(t), time.Minute), "store.identity").Found
	}
	if found, want := identity(s), identity(other); found != want {
		t.Errorf("doctor sees %q, want %q", found, want)
	}
}

// awkward are names that a database could confuse.
var awkward = []string{
	"a", "A", "a ", "a  ", "ä", "a\u0308", "'", `\`, `\'`, `"; DROP TABLE holdfast_names; --`, "%", "_", "?", "縗", "😀",
	strings.Repeat("x", store.MaxName), strings.Repeat("ü", store.MaxName/2),
}

func TestAPoolThatIsTooSmallIsRefused(t *testing.T) {
	db := connectTo(t, nil)
	db.SetMaxOpenConns(2)
	if _, err := New(db); err == nil || !strings.Contains(err.Error(), "MaxOpenConns of 3") {
		t.Errorf("%v, want an error that says what to set", err)
	}
}

func TestAnApplicationThatUsesUpItsPool(t *testing.T) {
	db := connectTo(t, nil)
	db.SetMaxOpenConns(suites.PoolConns)
	s := newIn(t, db)
	suites.PoolUsedUp(t, s, newIn(t, poolOf(t, databaseOf(t, db), nil)), func() func() {
		var taken []*sql.Conn
		eventually(t, "the application has all connections", func() bool {
			s.takes.disconnectIdle() // otherwise the store keeps its connections while it renews leases
			s.gives.disconnectIdle()
			for len(taken) < suites.PoolConns {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				conn, err := db.Conn(ctx)
				if err != nil {
					return false
				}
				taken = append(taken, conn)
			}
			return true
		})
		return func() {
			for _, conn := range taken {
				conn.Close()
			}
		}
	})
}
