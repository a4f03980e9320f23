//go:build unix

package main

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

func TestAQuorumIsNamedByItsURL(t *testing.T) {
	s := newSite(t)
	nodes := servers.StartRedisNodes(t, 3, servers.RedisOptions{})
	hosts := nodes[0].Addr() + "," + nodes[1].Addr() + "," + nodes[2].Addr()
	s.env = append(s.env, "HOLDFAST_STORE=quorum+redis://"+hosts+"?restart=off")
	holder := s.hold("a")
	p := s.run("run", "-n", "a", "--", "true")
	p.wantCode(75)
	p.wantErr(`"a" is held by ` + hostname(t))
	waiter := s.start("run", "a", "--", "true")
	until(t, "somebody waits", func() bool { return len(s.show("a").Waiters) == 1 })
	nodes[1].Kill() // one of three may fail
	s.write("go", "")
	holder.wantCode(0)
	waiter.wantCode(0)

	nodes[2].Kill()
	p = s.run("run", "a", "--", "true")
	p.wantCode(69)
	p.wantErr("1 of 3 nodes answered, 2 are needed")
}
