package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestManyProgramsCreateTheSchemaAtOnce(t *testing.T) {
	p := server(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := store.Open(context.Background(), p.URL()+"&schema=at%20once")
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
		})
	}
	wg.Wait()
	if got := p.Value(`SELECT "at once".version_v1()`); got != "1" {
		t.Errorf("version %s", got)
	}
}

func TestWithoutCreateAMissingSchemaIsAnErrorThatSaysWhatToDo(t *testing.T) {
	p := server(t)
	_, err := store.Open(t.Context(), p.URL()+"&schema=missing&create=false")
	if err == nil || !strings.Contains(err.Error(), "holdfast migrate") {
		t.Errorf("%v", err)
	}
	if got := p.Value("SELECT count(*) FROM pg_namespace WHERE nspname = 'missing'"); got != "0" {
		t.Error("the schema was created")
	}
}

func TestThePrintedSchemaIsTheCreatedOne(t *testing.T) {
	p := server(t)
	text, err := pgstore.Schema("printed")
	if err != nil {
		t.Fatal(err)
	}
	p.Must(text)
	s := open(t, p.URL()+"&schema=printed&create=false")
	granted(t, s, request("n"))
	pool := newPool(t, p.URL(), 2)
	for range 2 {
		if err := pgstore.Migrate(t.Context(), pool, "printed"); err != nil {
			t.Errorf("Migrate: %v", err)
		}
	}
	for _, bad := range []string{"pg_x", "a$b", strings.Repeat("x", 64)} {
		if _, err := pgstore.Schema(bad); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("Schema(%q): %v", bad, err)
		}
	}
}

// A role with the documented grants can lock, and can do nothing else to the tables.
func TestARoleWithTheDocumentedGrantsCanLockAndNothingElse(t *testing.T) {
	p := server(t)
	admin := open(t, p.URL()+"&schema=narrow")
	grants, err := pgstore.Grants("narrow", "narrow app")
	if err != nil {
		t.Fatal(err)
	}
	p.Must(`CREATE ROLE "narrow app" LOGIN; CREATE ROLE stranger LOGIN; ` + grants)
	as := func(role string) string {
		return strings.Replace(p.URL(), "postgres@", role+"@", 1) + "&schema=narrow"
	}
	s := open(t, as("narrow%20app"))
	r := request("n")
	granted(t, s, r)
	waiter := request("n")
	waiter.Queue = true
	refused(t, admin, waiter)
	if out, err := s.Renew(t.Context(), []store.Renewal{{Name: "n", ID: r.ID, TTL: r.TTL, Mode: store.Exclusive, Tokens: 5}}); err != nil || out[0].Status != store.Extended {
		t.Errorf("Renew: %v, %v", out, err)
	}
	if page, err := s.List(t.Context(), store.Query{}); err != nil || len(page.Locks) != 1 {
		t.Errorf("List: %v, %v", page, err)
	}
	release(t, s, r)
	granted(t, admin, waiter)

	pool := newPool(t, as("narrow%20app")[:strings.Index(as("narrow%20app"), "&schema")], 1)
	for _, statement := range []string{
		"SELECT * FROM narrow.names", "UPDATE narrow.names SET highest = 0", "DELETE FROM narrow.waiters",
		"INSERT INTO narrow.holders SELECT 'x'", "UPDATE narrow.meta SET floor = 0", "DROP FUNCTION narrow.version_v1",
		"CREATE TABLE narrow.x (y int)",
	} {
		if _, err := pool.Exec(t.Context(), statement); err == nil || !strings.Contains(err.Error(), "42501") && !strings.Contains(err.Error(), "must be owner") {
			t.Errorf("%s: %v, want that it is not permitted", statement, err)
		}
	}
	if _, err := store.Open(t.Context(), as("stranger")); err == nil {
		other := open(t, as("stranger"))
		if _, err := other.Acquire(t.Context(), request("n")); err == nil || !strings.Contains(err.Error(), "GRANT") {
			t.Errorf("a role without grants: %v, want an error that names them", err)
		}
	} else {
		t.Errorf("open without grants: %v", err)
	}
	elsewhere := strings.Replace(as("stranger"), "schema=narrow", "schema=elsewhere", 1)
	if _, err := store.Open(t.Context(), elsewhere); err == nil || !strings.Contains(err.Error(), "holdfast migrate") || strings.Contains(err.Error(), "GRANT") {
		t.Errorf("a role that may not create the schema: %v, want an error that says who may", err)
	}
}

// A later version keeps the functions of this one over its own tables. Programs of both exclude
// each other while the migration runs, and after it.
func TestProgramsOfTwoVersionsExcludeEachOtherDuringAMigration(t *testing.T) {
	p := server(t)
	url := p.URL() + "&schema=versions"
	old := open(t, url)
	c, err := holdfast.New(old)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p.Must("CREATE TABLE counted (n int); INSERT INTO counted VALUES (0)")
	pool := newPool(t, p.URL(), 8)
	ctx := t.Context()
	work := func(c *holdfast.Client, times int) error {
		for range times {
			lease, err := c.Lock(ctx, "n")
			if err != nil {
				return err
			}
			var n int
			if err := pool.QueryRow(ctx, "SELECT n FROM counted").Scan(&n); err != nil {
				return err
			}
			if _, err := pool.Exec(ctx, "UPDATE counted SET n = $1", n+1); err != nil {
				return err
			}
			if err := lease.Unlock(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	const times = 60
	errs := make(chan error, 3)
	go func() { errs <- work(c, times) }()

	// Version 2 has another column, and functions of its own beside those of version 1.
	text, err := pgstore.Schema("versions")
	if err != nil {
		t.Fatal(err)
	}
	migration := "BEGIN; SET LOCAL search_path = versions; ALTER TABLE names ADD COLUMN note text NOT NULL DEFAULT 'new';"
	for _, f := range []string{"one", "call", "list", "version"} {
		from := strings.Index(text, "CREATE FUNCTION "+f+"_v1")
		to := from + strings.Index(text[from:], "$$;") + 3
		migration += strings.ReplaceAll(text[from:to], f+"_v1", f+"_v2") + "\n"
	}
	p.Must(migration + "UPDATE meta SET version = 2; COMMIT")
	s2 := open(t, url)
	pgstore.UseVersion(s2.(*pgstore.Store), "versions", 2)
	c2, err := holdfast.New(s2)
	if err != nil {
		t.Fatal(err)
	}
	defer c2.Close()
	go func() { errs <- work(c2, times) }()
	s1 := open(t, url) // a program of version 1 that starts after the migration
	c1, err := holdfast.New(s1)
	if err != nil {
		t.Fatal(err)
	}
	defer c1.Close()
	go func() { errs <- work(c1, times) }()
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := p.Value("SELECT n FROM counted"); got != fmt.Sprint(3*times) {
		t.Errorf("%s updates, want %d: two held the lock at once", got, 3*times)
	}

	// If a later version of the schema no longer supports this program, the error says so.
	p.Must("DROP FUNCTION versions.one_v1, versions.call_v1")
	if _, err := store.Open(ctx, url); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("%v, want an error that names the versions", err)
	}
}

// The greatest name in the order of pages is listed too.
func TestTheLastNameIsListed(t *testing.T) {
	s := open(t, server(t).URL())
	r := request(strings.Repeat("\U0010ffff", store.MaxName/4))
	granted(t, s, r)
	defer release(t, s, r)
	page, err := s.List(t.Context(), store.Query{})
	if err != nil || len(page.Locks) != 1 || page.Locks[0].Name != r.Name {
		t.Errorf("listed %+v, %v", page, err)
	}
}
