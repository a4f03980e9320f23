//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// By default a server grants sessions of up to 40 s, and so TTLs of up to 32 s.
func TestATTLThatTheServerShortensIsTold(t *testing.T) {
	s := newSite(t)
	s.env = append(s.env, "HOLDFAST_STORE=zk://"+servers.StartZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"maxSessionTimeout=40000"}}).Addr())
	const less = "the store grants a TTL of 32s instead of 5m0s"
	p := s.run("acquire", "--json", "--ttl", "5m", "a")
	p.wantCode(0)
	p.wantErr(less)
	g := decode[grantJSON](t, p.out.String())
	p = s.run("renew", "--ttl", "5m", "a", "--id", g.ID)
	p.wantCode(0)
	p.wantErr(less)

	p = s.run("run", "--ttl", "5m", "--grace", "1m", "b", "-c", "sleep 1; echo done")
	p.wantCode(0)
	p.wantErr(less, "so the job is asked to end 5.333s before the lock is lost")
	if p.out.String() != "done\n" {
		t.Errorf("stdout: %q, want the job to run to its end", &p.out)
	}
	p = s.run("run", "b", "--", "true") // which has a TTL of 30 s
	p.wantCode(0)
	if p.err.String() != "" {
		t.Errorf("stderr: %s", &p.err)
	}
}

func TestASessionFitsTheTTL(t *testing.T) {
	s := newSite(t)
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"maxSessionTimeout=3600000"}})
	s.env = append(s.env, "HOLDFAST_STORE=zk://"+server.Addr())
	p := s.run("acquire", "--json", "--ttl", "5m", "a")
	p.wantCode(0)
	if p.err.String() != "" {
		t.Errorf("stderr: %s", &p.err)
	}
	if left := time.Until(decode[grantJSON](t, p.out.String()).Deadline); left < 4*time.Minute {
		t.Errorf("%v left of 5m", left)
	}
	// What the URL says is not changed.
	p = s.run("acquire", "--store", "zk://"+server.Addr()+"?session=10s", "--ttl", "5m", "b")
	p.wantCode(0)
	p.wantErr("the store grants a TTL of 8s instead of 5m0s")
	// A short TTL means that others do not wait long for a holder that died.
	holder := s.start("run", "--ttl", "2s", "c", "--", "sleep", "60")
	until(t, "c is held", func() bool { return strings.Contains(s.ok("ls"), "c ") })
	kill(holder.cmd.Process.Pid)
	begin := time.Now()
	s.run("run", "--ttl", "2s", "c", "--", "true").wantCode(0)
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("free after %v", d)
	}
}
