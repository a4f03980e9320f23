//go:build unix

package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A server without persistence has no locks after a restart. Their TTL was not over, and nobody has
// broken them.
func TestAServerThatRestartedEmptyHasLostItsLocks(t *testing.T) {
	s := newSite(t)
	server := servers.StartRedis(t, servers.RedisOptions{InMemory: true})
	s.env = append(s.env, "HOLDFAST_STORE=redis://"+server.Addr())
	g := decode[grantJSON](t, s.ok("acquire", "--json", "--ttl", "1h", "a"))
	holder := s.hold("b", "--ttl", lostTTL)
	server.Restart()
	for _, command := range []string{"renew", "release"} {
		p := s.run(command, "a", "--id", g.ID)
		p.wantCode(79)
		p.wantErr(`"a" is no longer held under that ID`, "or lost by the store")
	}
	holder.wantCode(79)
	if text := holder.err.String(); !strings.Contains(text, `lost "b": the grant is gone: expired, forcibly released, or lost by the store`) {
		t.Errorf("stderr: %s", text)
	}
}

// The server grants a waiter at most 5 s, until its first renewal.
func TestAJobThatWaitedHasTheTTLThatItAskedFor(t *testing.T) {
	s := newSite(t)
	s.env = append(s.env, "HOLDFAST_STORE=redis://"+servers.StartRedis(t, servers.RedisOptions{}).Addr())
	holder := s.hold("a")
	waiter := s.start("run", "--ttl", "9s", "--grace", "3s", "a", "-c", `echo $((HOLDFAST_DEADLINE - $(date +%s)))`)
	until(t, "a has a waiter", func() bool { return len(s.show("a").Waiters) == 1 })
	s.write("go", "")
	holder.wantCode(0)
	waiter.wantCode(0)
	if text := waiter.err.String(); text != "" {
		t.Errorf("stderr: %s", text)
	}
	if left, err := strconv.Atoi(strings.TrimSpace(waiter.out.String())); err != nil || left < 6 {
		t.Errorf("%q seconds were left of 9", &waiter.out)
	}
}

// If the password is wrong, the command line may be right, and the password may have changed. The tests of each
// store check that its error says so.
func TestAServerThatCannotBeUsedIsAnErrorOfOneLine(t *testing.T) {
	s := newSite(t)
	addr := servers.StartRedis(t, servers.RedisOptions{Password: "sEcReT"}).Addr()
	password := []string{"check the user and the password", "--store or HOLDFAST_STORE"}
	for url, says := range map[string][]string{
		"redis://127.0.0.1:1": {"redis://127.0.0.1:1"}, "etcd://127.0.0.1:1": {"etcd://127.0.0.1:1"}, "zk://127.0.0.1:1": {"zk://127.0.0.1:1"},
		"redis://:wrong@" + addr: password, "redis://" + addr: password,
	} {
		p := s.run("run", "--store", url, "a", "--", "true")
		p.wantCode(69)
		p.wantErr(append(says, "cannot open the store: ")...)
		if strings.Contains(p.err.String(), `\u000a`) {
			t.Errorf("%s: %q, want one line", url, &p.err)
		}
	}
}

// This server grants sessions of up to 100 s, and so TTLs of up to 80 s. The command asks for a longer
// session than the default.
func TestAShortenedTTLIsReported(t *testing.T) {
	s := newSite(t)
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"maxSessionTimeout=100000"}})
	s.env = append(s.env, "HOLDFAST_STORE=zk://"+server.Addr())
	const shortened = "the store grants a TTL of 1m20s instead of 5m0s"
	p := s.run("acquire", "--json", "--ttl", "5m", "a")
	p.wantCode(0)
	p.wantErr(shortened)
	g := decode[grantJSON](t, p.out.String())
	p = s.run("renew", "--ttl", "5m", "a", "--id", g.ID)
	p.wantCode(0)
	p.wantErr(shortened)

	p = s.run("run", "--ttl", "5m", "--grace", "1m", "b", "-c", "sleep 1; echo done")
	p.wantCode(0)
	p.wantErr(shortened, "so the job is asked to end 10s before the lock is lost")
	if p.out.String() != "done\n" {
		t.Errorf("stdout: %q, want the job to run to completion", &p.out)
	}
	p = s.run("doctor", "--problems", "--ttl", "5m")
	if !strings.Contains(p.out.String(), "zookeeper.session") {
		t.Errorf("doctor says nothing of the session: %s", &p.out)
	}
	p = s.run("run", "b", "--", "true") // with the default TTL of 30 s
	p.wantCode(0)
	if p.err.String() != "" {
		t.Errorf("stderr: %s", &p.err)
	}
}
