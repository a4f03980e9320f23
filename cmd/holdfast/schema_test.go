//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/mysqlstore"
	"github.com/holdfast-lock/holdfast/pgstore"
)

func TestMigrateCreatesTheTables(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"postgres": func(t *testing.T) string {
			return servers.StartPostgres(t, servers.PostgresOptions{NoSync: true}).URL() + "&create=false"
		},
		"mysql": func(t *testing.T) string {
			server := servers.StartMariaDB(t, servers.MariaDBOptions{})
			return server.URL(server.Addr()) + "?create=false"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.env = append(s.env, "HOLDFAST_STORE="+url(t))
			if text := s.ok("schema"); !strings.Contains(text, "CREATE TABLE") {
				t.Errorf("schema prints:\n%s", text)
			}
			s.run("ls").wantCode(exitUnavailable) // schema created nothing
			for range 2 {
				s.ok("migrate")
			}
			s.ok("run", "n", "--", "true")
		})
	}
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
