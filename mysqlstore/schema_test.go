package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/store"
)

// newIn opens a store in the database of a pool.
func newIn(t testing.TB, db *sql.DB, opts ...Option) *Store {
	t.Helper()
	s, err := New(db, opts...)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestNewCreatesTheTablesUnlessToldNotTo(t *testing.T) {
	db := connectTo(t, nil)
	if _, err := New(db, NoCreate()); !errors.Is(err, errNoTables) || !strings.Contains(err.Error(), "holdfast migrate") {
		t.Errorf("without tables: %v, want an error that says how to create them", err)
	}
	newIn(t, db)
	newIn(t, db, NoCreate())
}

func TestManyProgramsCanCreateTheTablesAtOnce(t *testing.T) {
	db := connectTo(t, nil)
	errs := make(chan error)
	for range 8 {
		go func() { errs <- Migrate(limited(t), db, "at_once_") }()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	newIn(t, db, NoCreate(), Prefix("at_once_"))
}

func TestPrefixesAreWorldsOfTheirOwn(t *testing.T) {
	db := connectTo(t, nil)
	a, b, c := newIn(t, db, Prefix("a_")), newIn(t, db, Prefix("b_")), newIn(t, db, Prefix("a_"))
	granted(t, a, request("name"))
	granted(t, b, request("name"))
	refused(t, c, request("name"))
}

// The documented rights are enough for everything except creating the tables.
func TestTheDocumentedGrantsAreEnough(t *testing.T) {
	db := connectTo(t, nil)
	schema, err := Schema("")
	must(t, err)
	mustExec(t, db, schema)
	name := databaseOf(t, db)
	grants, err := Grants(name, "", "'"+name+"'@'%'")
	must(t, err)
	doc, err := os.ReadFile("doc.go")
	must(t, err)
	mustExec(t, db, "CREATE USER '"+name+"'@'%' IDENTIFIED BY 'little'")
	defer mustExec(t, db, "DROP USER '"+name+"'@'%'")
	for statement := range strings.SplitSeq(grants, ";\n") {
		if statement == "" {
			continue
		}
		mustExec(t, db, statement)
		written := strings.NewReplacer(name, "locks", "'"+name+"'@", "'app'@").Replace(statement)
		written = strings.ReplaceAll(written, "'locks'@'%'", "'app'@'%'")
		if !strings.Contains(string(doc), written) {
			t.Errorf("the documentation does not have: %s", written)
		}
	}
	little := poolOf(t, name, func(c *mysql.Config) { c.User, c.Passwd = name, "little" })
	s := newIn(t, little)
	useEverything(t, s)
	if err := s.sweepNow(limited(t)); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if _, err := New(little, Prefix("other_")); err == nil || !strings.Contains(err.Error(), "run holdfast migrate") {
		t.Errorf("tables that it may not create: %v, want an error that says what to do", err)
	}
	mustExec(t, db, "GRANT SELECT ON `"+name+"`.* TO '"+name+"'@'%'")
	reader := poolOf(t, name, func(c *mysql.Config) { c.User, c.Passwd = name, "little" })
	if _, err := New(reader, Prefix("other_")); err == nil || !strings.Contains(err.Error(), "let a user that may create them run holdfast migrate") || strings.Contains(err.Error(), "GRANT") {
		t.Errorf("missing tables that it may not create: %v, want an error that says who may", err)
	}
	mustExec(t, db, "REVOKE UPDATE ON `"+name+"`.`holdfast_names` FROM '"+name+"'@'%'")
	_, err = s.Acquire(limited(t), request("revoked"))
	if err == nil || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("after a right was withdrawn: %v, want an error that says so", err)
	}
}

// useEverything makes every kind of call.
func useEverything(t testing.TB, s *Store) {
	t.Helper()
	ctx := limited(t)
	a, b := request("everything"), queued("everything")
	granted(t, s, a)
	refused(t, s, b)
	if page, err := s.List(ctx, store.Query{Prefix: "every"}); err != nil || len(page.Locks) != 1 || len(page.Locks[0].Waiters) != 1 {
		t.Fatalf("List: %+v, %v", page, err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := s.Wait(short, b.Name, b.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Wait: %v", err)
	}
	r := renewal(a)
	extended(t, s, r)
	r.Mode, r.Tokens = store.Shared, 5
	extended(t, s, r)
	leave(t, s, b)
	release(t, s, a)
	c := request("everything")
	granted(t, s, c)
	if err := s.Release(ctx, c.Name, c.ID, store.Keep{State: store.Done, For: time.Minute}); err != nil {
		t.Fatalf("Release: %v", err)
	}
	if err := s.Break(ctx, c.Name, c.ID); err != nil {
		t.Fatalf("Break: %v", err)
	}
}

// A later version adds to the tables. Programs of both versions exclude each other.
func TestAnOlderProgramGoesOnBesideACompatibleVersion(t *testing.T) {
	db := connectTo(t, nil)
	old := newIn(t, db)
	held := request("held")
	granted(t, old, held)
	mustExec(t, db,
		"ALTER TABLE holdfast_names ADD COLUMN colour INT NOT NULL DEFAULT 0",
		"ALTER TABLE holdfast_claims ADD COLUMN colour INT NOT NULL DEFAULT 0",
		"UPDATE holdfast_meta SET version = 2")
	useEverything(t, old)
	useEverything(t, newIn(t, db)) // opened after the migration
	refused(t, old, request("held"))
	if err := Migrate(limited(t), db, ""); err != nil {
		t.Errorf("Migrate by the older version: %v", err)
	}
}

// A version with an incompatible change stops an older program from granting locks.
func TestAnOlderProgramGrantsNothingBesideAnIncompatibleVersion(t *testing.T) {
	db := connectTo(t, nil)
	old := newIn(t, db)
	granted(t, old, request("before"))
	mustExec(t, db, "UPDATE holdfast_meta SET version = 2, compatible = 2")
	time.Sleep(metaFresh)
	for _, req := range []store.Request{request("after"), request("before"), queued("before")} {
		if answer, err := old.Acquire(limited(t), req); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "update this program") {
			t.Errorf("%q: %+v, %v; want an ErrInvalid that says what to do", req.Name, answer, err)
		}
	}
	for _, open := range []func() error{
		func() error { _, err := New(db); return err },
		func() error { return Migrate(limited(t), db, "") },
	} {
		if err := open(); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "update this program") {
			t.Errorf("%v; want an ErrInvalid that says what to do", err)
		}
	}
}

// What a later version has written stays as it is when an older program is refused, or sweeps.
func TestARefusalChangesNothingBesideAnIncompatibleVersion(t *testing.T) {
	c := newCrowd(t, "n")
	for _, s := range []*Store{c.holder, c.first, c.second} {
		<-s.sweep.running
	}
	mustExec(t, c.db, "UPDATE holdfast_meta SET version = 2, compatible = 2, swept = 0",
		"UPDATE holdfast_names SET special = 5, until = since + 1, data = 'later'",
		"UPDATE holdfast_claims SET data = 'later'",
		"UPDATE holdfast_claims SET until = since + 1 WHERE id = "+idLiteral(c.waitingToo.ID))
	dump := func() (names, claims string) {
		scan(t, c.db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', name, special, last, HEX(id), since, until, data)) FROM holdfast_names", &names)
		scan(t, c.db, "SELECT GROUP_CONCAT(CONCAT_WS(' ', name, seq, HEX(id), since, until, rung, data) ORDER BY seq) FROM holdfast_claims", &claims)
		return names, claims
	}
	names, claims := dump()
	unused := queued("unused")
	unused.Floor = maxFast
	for range 2 {
		for _, req := range []store.Request{c.waiting, queued("n"), unused} {
			if _, err := c.first.Acquire(limited(t), req); !errors.Is(err, errIncompatible) {
				t.Errorf("%v, want %v", err, errIncompatible)
			}
		}
	}
	if err := c.first.sweepNow(limited(t)); err != nil {
		t.Error(err)
	}
	if namesAfter, claimsAfter := dump(); namesAfter != names || claimsAfter != claims {
		t.Errorf("names:\n%s, before:\n%s\nclaims:\n%s, before:\n%s", namesAfter, names, claimsAfter, claims)
	}
}

// The statements should run on MySQL 8 as well, which this test does not run.
func TestStatementsHaveNothingThatOnlyMariaDBKnows(t *testing.T) {
	schema, err := Schema("")
	must(t, err)
	text := schema
	for _, file := range []string{"sql.go", "sweep.go", "tx.go", "conn.go"} {
		source, err := os.ReadFile(file)
		must(t, err)
		text += string(source)
	}
	for _, word := range []string{`RETURNING`, `SET STATEMENT`, `CREATE SEQUENCE`, `NEXT VALUE`, `/\*M?!`, `tx_isolation`, `max_statement_time`, `idle_transaction_timeout`} {
		if regexp.MustCompile(`\b`+word+`\b`).MatchString(text) || strings.Contains(text, word) {
			t.Errorf("%s", word)
		}
	}
}
