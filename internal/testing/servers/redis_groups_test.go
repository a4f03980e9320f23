package servers_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// setEverywhere sets k to v and waits until this number of replicas have it.
func setEverywhere(t testing.TB, r *servers.Redis, replicas int) {
	t.Helper()
	c, err := r.Dial() // WAIT concerns only the writes of its own connection
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Do("SET", "k", "v"); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Do("WAIT", strconv.Itoa(replicas), "4000"); n != int64(replicas) {
		t.Fatalf("%v replicas have the write, %v, want %d", n, err, replicas)
	}
}

func TestSentinelsPromoteAReplicaWhenThePrimaryIsKilled(t *testing.T) {
	begin := time.Now()
	g := servers.StartSentinel(t, 2, 3, servers.RedisOptions{})
	t.Logf("started in %v", time.Since(begin))
	old := g.Primary()
	if old != g.Nodes[0] {
		t.Fatalf("%s starts as primary", old.Addr())
	}
	setEverywhere(t, old, 2)
	begin = time.Now()
	old.Kill()
	primary := g.AwaitFailover(old)
	t.Logf("failover in %v", time.Since(begin))
	wantAnswer(t, primary, "v", "GET", "k")
	old.Restart()
	g.AwaitReplicas()
}

func TestClusterSurvivesAKilledPrimary(t *testing.T) {
	begin := time.Now()
	c := servers.StartCluster(t, servers.RedisOptions{})
	t.Logf("started in %v", time.Since(begin))
	old := c.Primary("k")
	setEverywhere(t, old, 1)
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

func TestSentinelsAndNodesCanBeRestartedOneByOne(t *testing.T) {
	g := servers.StartSentinel(t, 2, 3, servers.RedisOptions{})
	g.Sentinels[0].Kill()
	g.Nodes[2].Kill()
	if p := g.Primary(); p != g.Nodes[0] {
		t.Errorf("%s became primary without a failure", p.Addr())
	}
	g.Nodes[2].Restart()
	g.AwaitReplicas()
	g.Sentinels[1].Wipe() // loses its state and discovers the group again
	g.Sentinels[0].Restart()
	g.AwaitSentinels()
}

func TestGroupsSupportTLSWithUsersAndPasswords(t *testing.T) {
	opts := servers.RedisOptions{
		TLS:      servers.NewCertificates(t),
		Password: "secret",
		ACL:      []string{"user app on >secret ~* +@all"},
	}
	t.Run("Sentinel", func(t *testing.T) {
		g := servers.StartSentinel(t, 1, 1, opts)
		g.Nodes[0].Kill()
		wantAnswer(t, g.AwaitFailover(g.Nodes[0]), "OK", "SET", "k", "v")
	})
	t.Run("Cluster", func(t *testing.T) {
		c := servers.StartCluster(t, opts)
		wantAnswer(t, c.Primary("k"), "OK", "SET", "k", "v")
	})
}

func TestWipedClusterNodeStaysInTheCluster(t *testing.T) {
	c := servers.StartCluster(t, servers.RedisOptions{})
	node := c.Primary("k")
	setEverywhere(t, node, 1)
	id := node.Must("CLUSTER", "MYID")
	node.Wipe()
	c.AwaitOK()
	wantAnswer(t, node, id, "CLUSTER", "MYID")
	if nodes := node.Must("CLUSTER", "NODES").(string); strings.Count(nodes, "\n") != len(c.Nodes) {
		t.Errorf("it no longer knows the other nodes:\n%s", nodes)
	}
}
