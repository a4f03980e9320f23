//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// quorumSite returns a site whose store is a quorum of servers that vote right after their start.
func quorumSite(t *testing.T) (*site, []*servers.Redis) {
	t.Helper()
	s := newSite(t)
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{Password: "sEcReT"})
	hosts := nodes[0].Addr() + "," + nodes[1].Addr() + "," + nodes[2].Addr()
	s.env = append(s.env, "HOLDFAST_STORE=quorum+redis://:sEcReT@"+hosts+"?restart=off")
	return s, nodes
}

func TestAQuorumIsNamedByItsURL(t *testing.T) {
	s, nodes := quorumSite(t)
	holder := s.hold("a")
	p := s.run("run", "-n", "a", "--", "true")
	p.wantCode(75)
	p.wantErr(`"a" is held by ` + hostname(t))
	waiter := s.start("run", "a", "--", "true")
	until(t, "a has a waiter", func() bool { return len(s.show("a").Waiters) == 1 })
	nodes[1].Kill() // one of three may fail
	s.write("go", "")
	holder.wantCode(0)
	waiter.wantCode(0)

	nodes[2].Kill()
	p = s.run("run", "a", "--", "true")
	p.wantCode(69)
	p.wantErr("1 of 3 nodes answered, 2 are needed")
}

func TestDoctorNamesTheNodeOfAQuorum(t *testing.T) {
	s, nodes := quorumSite(t)
	nodes[1].Must("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
	nodes[2].Kill()
	p := s.run("doctor", "--ttl", "3s")
	p.wantCode(2)
	for _, want := range []string{
		"ok       store.exclusion: ",
		"failure  redis.eviction: " + nodes[1].Addr() + ": ",
		"warning  quorum.answers: " + nodes[2].Addr() + ": ",
		"failure  quorum.restart-delay: restart=off",
	} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("doctor does not say %q:\n%s", want, &p.out)
		}
	}
	if strings.Contains(p.out.String()+p.err.String(), "sEcReT") {
		t.Error("the password was printed")
	}
}
