package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
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
	must(t, err)
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
	must(t, err)
	p.Must(`CREATE ROLE "narrow app" LOGIN; CREATE ROLE stranger LOGIN; ` + grants)
	as := func(role string) string {
		return strings.Replace(p.URL(), "postgres@", role+"@", 1) + "&schema=narrow"
	}
	s := open(t, as("narrow%20app"))
	r := request("n")
	granted(t, s, r)
	waiter := suites.Queued("n")
	refused(t, admin, waiter)
	extended(t, s, store.Renewal{Name: "n", ID: r.ID, TTL: r.TTL, Mode: store.Exclusive, Tokens: 5})
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

// An administrator made the schema for a role that may not create schemas.
func TestARoleCanCreateTheTablesInASchemaThatItOwns(t *testing.T) {
	p := server(t)
	p.Must("CREATE ROLE stranger LOGIN; CREATE SCHEMA \"it's owned\" AUTHORIZATION stranger")
	s := open(t, strings.Replace(p.URL(), "postgres@", "stranger@", 1)+"&schema=it%27s%20owned")
	granted(t, s, request("n"))
}

// The schema may be one of the application's, such as public.
func TestTheRightsOfOtherObjectsInTheSchemaStayAsTheyAre(t *testing.T) {
	p := server(t)
	p.Must(`CREATE ROLE stranger LOGIN; CREATE ROLE "narrow app" LOGIN; CREATE SCHEMA theirs; CREATE TABLE theirs.readable AS SELECT 1 AS n;
		GRANT USAGE ON SCHEMA theirs TO stranger; GRANT SELECT ON theirs.readable TO PUBLIC;
		CREATE FUNCTION theirs.callable() RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION theirs.secret() RETURNS int LANGUAGE sql AS 'SELECT 1'; REVOKE ALL ON FUNCTION theirs.secret FROM PUBLIC`)
	open(t, p.URL()+"&schema=theirs")
	grants, err := pgstore.Grants("theirs", "narrow app")
	must(t, err)
	p.Must(grants)
	for query, want := range map[string]string{
		"has_table_privilege('stranger', 'theirs.readable', 'SELECT')":           "t",
		"has_function_privilege('stranger', 'theirs.callable()', 'EXECUTE')":     "t",
		"has_function_privilege('narrow app', 'theirs.secret()', 'EXECUTE')":     "f",
		"has_function_privilege('narrow app', 'theirs.version_v1()', 'EXECUTE')": "t",
	} {
		if got := p.Value("SELECT " + query); got != want {
			t.Errorf("%s is %s, want %s", query, got, want)
		}
	}
	if open := p.Must(`SELECT proname FROM pg_proc WHERE pronamespace = 'theirs'::regnamespace AND prosecdef
		AND has_function_privilege('stranger', oid, 'EXECUTE')`); len(open) > 0 {
		t.Errorf("every role may call %v with the rights of their owner", open)
	}
	if tables := p.Must(`SELECT relname, r FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) r
		WHERE relnamespace = 'theirs'::regnamespace AND relkind = 'r' AND relname <> 'readable' AND has_table_privilege('stranger', oid, r)`); len(tables) > 0 {
		t.Errorf("every role has these rights: %v", tables)
	}
}

// A later version keeps the functions of this one over its own tables. Programs of both exclude
// each other while the migration runs, and after it.
func TestProgramsOfTwoVersionsExcludeEachOtherDuringAMigration(t *testing.T) {
	p := server(t)
	url := p.URL() + "&schema=versions"
	old := open(t, url)
	c := client(t, old)
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
	must(t, err)
	migration := "BEGIN; SET LOCAL search_path = versions; ALTER TABLE names ADD COLUMN note text NOT NULL DEFAULT 'new';"
	for _, f := range []string{"acquire", "release", "one", "call", "list", "version"} {
		from := strings.Index(text, "CREATE FUNCTION "+f+"_v1")
		to := from + strings.Index(text[from:], "$$;") + 3
		migration += strings.ReplaceAll(text[from:to], f+"_v1", f+"_v2") + "\n"
	}
	p.Must(migration + "UPDATE meta SET version = 2; COMMIT")
	s2 := open(t, url)
	pgstore.UseVersion(s2.(*pgstore.Store), "versions", 2)
	c2 := client(t, s2)
	go func() { errs <- work(c2, times) }()
	s1 := open(t, url) // a program of version 1 that starts after the migration
	c1 := client(t, s1)
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
	for _, f := range []string{"acquire", "release", "one", "call"} {
		p.Must("DROP FUNCTION versions." + f + "_v1")
	}
	if _, err := store.Open(ctx, url); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("%v, want an ErrInvalid that names the versions", err)
	}
	if _, err := s1.Acquire(ctx, request("no more")); err == nil || !strings.Contains(err.Error(), "update this program") {
		t.Errorf("%v, want an error that says what to do", err)
	}
}

// The functions run with the rights of their owner. A role must not be able to make them use
// operators and functions of its own.
func TestFunctionsIgnoreOperatorsAndFunctionsOfTheCaller(t *testing.T) {
	p := server(t)
	open(t, p.URL()+"&schema=rights")
	p.Must(`CREATE SCHEMA own; DO $do$
DECLARE
	o record;
	n integer := 0;
	fail text := 'LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION USING MESSAGE = %L; END $f$';
BEGIN
	FOR o IN SELECT oprname AS name, oprleft::regtype AS l, oprright::regtype AS r, oprresult::regtype AS result FROM pg_operator
		WHERE oprkind = 'b' AND oprleft IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'float8'::regtype, 'text'::regtype, 'uuid'::regtype)
			AND oprright IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'float8'::regtype, 'text'::regtype, 'uuid'::regtype)
	LOOP
		n := n + 1;
		EXECUTE format('CREATE FUNCTION own.operator%s(%s, %s) RETURNS %s ', n, o.l, o.r, o.result) || format(fail, o.name || ' of the caller');
		EXECUTE format('CREATE OPERATOR own.%s (FUNCTION = own.operator%s, LEFTARG = %s, RIGHTARG = %s)', o.name, n, o.l, o.r);
	END LOOP;
	FOR o IN SELECT proname AS name, pg_get_function_identity_arguments(oid) AS arguments, prorettype::regtype AS result FROM pg_proc
		WHERE pronamespace = 'pg_catalog'::regnamespace AND proname IN ('current_setting', 'set_config', 'pg_advisory_xact_lock', 'hashtext',
			'date_part', 'clock_timestamp', 'replace', 'pg_notify', 'to_json', 'json_strip_nulls', 'repeat', 'chr')
	LOOP
		EXECUTE format('CREATE FUNCTION own.%I(%s) RETURNS %s ', o.name, o.arguments, o.result) || format(fail, o.name || ' of the caller');
	END LOOP;
END $do$`)
	pool := poolWith(t, p.URL(), func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["search_path"] = "own, pg_temp, pg_catalog"
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	})
	if _, err := pool.Exec(t.Context(), "SELECT 1 + 1"); err == nil || !strings.Contains(err.Error(), "+ of the caller") {
		t.Fatalf("%v, want that the operator of the caller is used", err)
	}
	const id, other = "'00000000-0000-0000-0000-000000000001'", "'00000000-0000-0000-0000-000000000002'"
	acquire := func(id string) string {
		return "SELECT rights.acquire_v1(5000000, '', 'n', " + id + ", 1000000, 1, 0, true, '', '')"
	}
	one := func(op int, id string) string {
		return fmt.Sprintf("SELECT rights.one_v1(5000000, '', %d::smallint, 'n', %s, 2::smallint, 1, 0, 1000000, 0, 0, false, '', '')", op, id)
	}
	call := func(op int, id string) string {
		return fmt.Sprintf(`SELECT rights.call_v1(5000000, '', false, '', 64, '{%d}', '{n}', ARRAY[%s::uuid], '{1}', '{1}', '{0}', '{1000000}', '{1}', '{0}', '{false}', '{""}', '{""}')`, op, id)
	}
	for _, statement := range []string{
		acquire(id), acquire(other), "SELECT rights.release_v1('n', " + id + ")", acquire(other), one(5, other), one(4, other), one(6, other),
		acquire(id), "SELECT rights.release_v1('n', " + id + ")", // by the short path
		acquire(id), "SELECT rights.release_v1('n', " + id + ")",
		one(1, id), one(2, id), one(3, id), call(1, id), call(2, id), "SELECT rights.list_v1('', '', '', 10)", "SELECT rights.version_v1()",
	} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// Grants and what keeps a name closed wait for the disk. Releases and refusals do not. All calls
// refuse isolation levels under which they would not see each other's changes.
func TestWhatWaitsForTheDiskAndWhichLevelsAreRefused(t *testing.T) {
	p := server(t)
	open(t, p.URL()+"&schema=levels")
	for session, waits := range map[string]string{"on": "on", "remote_apply": "remote_apply", "local": "on", "off": "on"} {
		t.Run("synchronous_commit "+session, func(t *testing.T) {
			p.Must("DELETE FROM levels.names; DELETE FROM levels.waiters")
			testWhatWaits(t, newPool(t, p.URL()+"&options=-c%20synchronous_commit%3D"+session, 1), waits)
		})
	}
}

// testWhatWaits takes the setting of synchronous_commit that calls that wait must have.
func testWhatWaits(t *testing.T, pool *pgxpool.Pool, waits string) {
	const id, other = "'00000000-0000-0000-0000-000000000001'", "'00000000-0000-0000-0000-000000000002'"
	acquire := func(id string) string {
		return "SELECT levels.acquire_v1(5000000, '', 'n', " + id + ", 60000000, 1, 0, true, '', '')"
	}
	release := "SELECT levels.release_v1('n', " + id + ")"
	one := func(op int) string {
		return fmt.Sprintf("SELECT levels.one_v1(5000000, '', %d::smallint, 'n', %s, 1::smallint, 1, 0, 60000000, 0, 0, false, '', '')", op, id)
	}
	several := func(ops string, ids ...string) string {
		same := func(v string) string { return "'{" + strings.TrimSuffix(strings.Repeat(v+",", len(ids)), ",") + "}'" }
		return fmt.Sprintf("SELECT levels.call_v1(5000000, '', false, '', 0, '{%s}', %s, ARRAY[%s]::uuid[], %s, %s, %s, %s, %s, %s, %s, %s, %s)",
			ops, same("n"), strings.Join(ids, ","), same("1"), same("1"), same("0"), same("60000000"), same("1"), same("0"), same("false"), same(`""`), same(`""`))
	}
	for _, c := range []struct{ what, statement, commits string }{
		{"a grant of a new name", acquire(id), waits},
		{"a refusal", acquire(other), "off"},
		{"a renewal", one(5), waits},
		{"a release with a waiter", release, "off"},
		{"a grant to the waiter", acquire(other), waits},
		{"a release that comes too late", release, "off"},
		{"a release by the other", several("2", other), "off"},
		{"a grant of a free name", acquire(id), waits},
		{"a release", release, "off"},
		{"a grant among several calls", several("1", id), waits},
		{"a release among several calls", several("2", id), "off"},
		{"a grant before a release", several("1,2", id, id), waits},
		{"a release after nothing", several("2,2", id, id), "off"},
		{"a grant of one call", one(1), waits},
		{"a kept record", one(4), waits},
		{"a break", one(6), waits},
	} {
		for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"} {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL "+level); err != nil {
					return err
				}
				if _, err := tx.Exec(t.Context(), c.statement); err != nil {
					return err
				}
				var commits string
				if err := tx.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit')").Scan(&commits); err != nil {
					return err
				}
				if commits != c.commits {
					t.Errorf("%s: synchronous_commit is %s, want %s", c.what, commits, c.commits)
				}
				return nil
			})
			if level == "READ COMMITTED" && err != nil || level != "READ COMMITTED" && (err == nil || !strings.Contains(err.Error(), "HF001")) {
				t.Errorf("%s, %s: %v", c.what, level, err)
			}
		}
	}
}
