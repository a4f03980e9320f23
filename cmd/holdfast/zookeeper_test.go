//go:build unix

package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

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
	p = s.run("run", "b", "--", "true") // with the default TTL of 30 s
	p.wantCode(0)
	if p.err.String() != "" {
		t.Errorf("stderr: %s", &p.err)
	}
}
