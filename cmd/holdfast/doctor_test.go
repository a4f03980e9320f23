//go:build unix

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

const doctorPage = "../../docs/doctor.md"

// pagePart compares the text between two comments of the page about doctor with the expected
// text. The flag -update writes it.
func pagePart(t *testing.T, name, want string) {
	t.Helper()
	content, err := os.ReadFile(doctorPage)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, ok1 := strings.Cut(string(content), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no part %q", doctorPage, name)
	}
	if got == want {
		return
	}
	if *update {
		if err := os.WriteFile(doctorPage, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s: the part %q is not up to date; run: go test -run '%s' -update .\nwant:\n%s", doctorPage, name, t.Name(), want)
}

// storesOf returns the names of the stores that the check with this ID is for, as the page shows
// them.
func storesOf(id string) string {
	prefix, _, _ := strings.Cut(id, ".")
	if strings.HasPrefix(id, "redis.cluster") || id == "store.clock-spread" {
		return "Redis Cluster"
	}
	return map[string]string{
		"store": "all", "redis": "Redis", "etcd": "etcd", "zookeeper": "ZooKeeper",
		"postgres": "PostgreSQL", "mysql": "MySQL, MariaDB", "sqlite": "SQLite", "quorum": "quorum",
	}[prefix]
}

func TestThePageAboutDoctorListsEveryCheck(t *testing.T) {
	var b strings.Builder
	b.WriteString("| check | stores | level | what can go wrong | what to do |\n|---|---|---|---|---|\n")
	for _, c := range diagnosis.All() {
		stores := storesOf(c.ID)
		if stores == "" || c.Risk == "" || c.Remedy == "" || c.Level == store.LevelOK || strings.ContainsAny(c.Risk+c.Remedy, "|\n") {
			t.Errorf("incomplete: %+v", c)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", c.ID, stores, c.Level, c.Risk, c.Remedy)
	}
	pagePart(t, "checks", b.String())
}

// measured replaces the parts of the output that differ from run to run.
var measured = []struct{ from, to string }{
	{`\b[0-9.]+(ns|µs|ms|s)\b`, "…"},
	{`: version [0-9.]+`, ": version …"},
	{`replication ID [0-9a-f]+`, "replication ID …"},
	{`the last is [0-9]+`, "the last is …"},
	{`[0-9.]+ (KiB|MiB) of ([0-9.]+ MiB) used, [0-9]+ %`, "… of $2 used, … %"},
	{`[0-9]+ of ([0-9]+) connections`, "… of $1 connections"},
	{`… (ahead of|behind) that of`, "… ahead of that of"},
}

func TestDoctorOnABadlySetUpRedis(t *testing.T) {
	s := newSite(t)
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true, Password: "sEcReT", Config: []string{
		"maxmemory 100mb", "maxmemory-policy allkeys-lru", "timeout 60",
	}})
	p := s.run("doctor", "--store", "redis://:sEcReT@"+server.Addr())
	p.wantCode(2)
	text := p.out.String()
	p = s.run("doctor", "--json", "--store", "redis://:sEcReT@"+server.Addr())
	p.wantCode(2)
	type finding struct{ ID, Node, Level, Found, Risk, Remedy string }
	levels := make(map[string]string)
	for line := range strings.Lines(p.out.String()) {
		f := decode[finding](t, line)
		levels[f.ID] = f.Level
		if strings.HasPrefix(f.ID, "redis.") && f.Node != server.Addr() || (f.Level != "ok") != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("%+v", f)
		}
	}
	for id, level := range map[string]string{"redis.eviction": "failure", "redis.persistence": "warning", "redis.idle-timeout": "warning", "store.exclusion": "ok"} {
		if levels[id] != level {
			t.Errorf("%s: %s, want %s", id, levels[id], level)
		}
	}
	if strings.Contains(text+p.out.String()+p.err.String(), "sEcReT") {
		t.Error("the password was printed")
	}
	text = strings.ReplaceAll(text, server.Addr(), "127.0.0.1:6379")
	for _, m := range measured {
		text = regexp.MustCompile(m.from).ReplaceAllString(text, m.to)
	}
	pagePart(t, "example", "```text\n$ holdfast doctor --store redis://:PASSWORD@127.0.0.1\n"+text+"```\n")
}

func TestDoctorShowsServersThatAreInOrderTogether(t *testing.T) {
	findings := []store.Finding{
		{ID: "a", Node: "x:1", Found: "good"},
		{ID: "b", Node: "x:1", Level: store.LevelWarning, Found: "bad", Risk: "r", Remedy: "d"},
		{ID: "a", Node: "y:1", Found: "good"},
		{ID: "b", Node: "y:1", Found: "fine"},
		{ID: "c", Found: "all"},
		{ID: "a", Node: "z:1", Found: "good"},
	}
	want := `ok       a: good; and 2 other servers are in order
warning  b: x:1: bad
         risk: r
         do: d
ok       b: y:1: fine
ok       c: all
6 checks: ok 5, notes 0, unknown 0, warnings 1, failures 0
`
	if got := doctorText(findings, false); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	want = `warning  b: x:1: bad
         risk: r
         do: d
6 checks: ok 5, notes 0, unknown 0, warnings 1, failures 0
`
	if got := doctorText(findings, true); got != want {
		t.Errorf("only problems:\n%s\nwant:\n%s", got, want)
	}
}
