package servers_test

import (
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

func TestSentinelsPromoteAReplicaWhenThePrimaryIsKilled(t *testing.T) {
	begin := time.Now()
	g := servers.StartSentinel(t, 2, 3, servers.RedisOptions{})
	t.Logf("started in %v", time.Since(begin))
	old := g.Primary()
	if old != g.Nodes[0] {
		t.Fatalf("%s starts as primary", old.Addr())
	}
	old.Must("SET", "k", "v")
	wantAnswer(t, old, int64(2), "WAIT", "2", "5000")
	begin = time.Now()
	old.Kill()
	primary := g.AwaitFailover(old)
	t.Logf("failover in %v", time.Since(begin))
	wantAnswer(t, primary, "v", "GET", "k")
	old.Restart()
	g.AwaitReplicas()
}

func TestAClusterSurvivesAKilledPrimary(t *testing.T) {
	begin := time.Now()
	c := servers.StartCluster(t, servers.RedisOptions{})
	t.Logf("started in %v", time.Since(begin))
	old := c.Primary("k")
	old.Must("SET", "k", "v")
	wantAnswer(t, old, int64(1), "WAIT", "1", "5000")
	begin = time.Now()
	old.Kill()
	primary := c.Primary("k")
	t.Logf("failover in %v", time.Since(begin))
	wantAnswer(t, primary, "v", "GET", "k")
	c.AwaitOK()
	old.Restart()
	c.AwaitOK()
	if got := c.Primary("k"); got != primary {
		t.Errorf("%s serves the key after the restart of %s, want %s", got.Addr(), old.Addr(), primary.Addr())
	}
}
