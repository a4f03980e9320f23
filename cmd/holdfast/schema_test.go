//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/mysqlstore"
	"github.com/holdfast-lock/holdfast/pgstore"
)

func TestMigrateCreatesTheTablesOfPostgreSQL(t *testing.T) {
	s := newSite(t)
	server := servers.StartPostgres(t, servers.PostgresOptions{NoSync: true})
	url := server.URL() + "&create=false"
	s.env = append(s.env, "HOLDFAST_STORE="+url)

	s.run("ls").wantCode(exitUnavailable)
	p := s.run("schema")
	p.wantCode(0)
	if !strings.Contains(p.out.String(), "CREATE FUNCTION one_v1") {
		t.Errorf("schema prints:\n%s", p.out.String())
	}
	if got := server.Value("SELECT count(*) FROM pg_namespace WHERE nspname = 'holdfast'"); got != "0" {
		t.Error("schema created the tables")
	}
	for range 2 {
		s.run("migrate").wantCode(0)
	}
	s.run("run", "n", "--", "true").wantCode(0)
	s.run("ls").wantCode(0)
}

func TestMigrateCreatesTheTablesOfMySQL(t *testing.T) {
	s := newSite(t)
	server := servers.StartMariaDB(t, servers.MariaDBOptions{})
	s.env = append(s.env, "HOLDFAST_STORE="+server.URL(server.Addr())+"?create=false")

	s.run("ls").wantCode(exitUnavailable)
	p := s.run("schema")
	p.wantCode(0)
	if !strings.Contains(p.out.String(), "CREATE TABLE") {
		t.Errorf("schema prints:\n%s", p.out.String())
	}
	s.run("ls").wantCode(exitUnavailable) // schema created nothing
	for range 2 {
		s.run("migrate").wantCode(0)
	}
	s.run("run", "n", "--", "true").wantCode(0)
	s.run("ls").wantCode(0)
}

func TestSchemaAndMigrateNeedADatabase(t *testing.T) {
	s := newSite(t)
	for _, command := range []string{"schema", "migrate"} {
		s.run(command).wantCode(exitUsage)
		s.run(command, "--store", "redis://127.0.0.1:1").wantCode(exitUsage)
		s.run(command, "--store", "postgres://127.0.0.1:1/db?schema=pg_x").wantCode(exitUsage)
		s.run(command, "--store", "mysql://127.0.0.1:1/db?prefix=a-b").wantCode(exitUsage)
	}
	s.run("migrate", "--store", "postgres://u:secret@127.0.0.1:1/db").wantCode(exitUnavailable)
}

func TestTheHelpOfSchemaListsTheGrants(t *testing.T) {
	postgres, err := pgstore.Grants("", "app")
	if err != nil {
		t.Fatal(err)
	}
	mysql, err := mysqlstore.Grants("shop", "", "app")
	if err != nil {
		t.Fatal(err)
	}
	help := newSchemaCommand().Long
	for line := range strings.Lines(strings.NewReplacer("`", "", `"`, "").Replace(postgres + mysql)) {
		if !strings.Contains(help+"\n", "    "+line) {
			t.Errorf("the help of schema lacks %s", line)
		}
	}
}
