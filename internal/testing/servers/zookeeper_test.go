package servers_test

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestSingleZooKeeperCanBeRestarted(t *testing.T) {
	z := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	if mode, err := z.Mode(); mode != "standalone" {
		t.Fatalf("mode %q, %v", mode, err)
	}
	z.Kill()
	wantRefused(t, z.Addr())
	z.Restart()
	stats, err := z.Stats()
	if err != nil || stats["zk_znode_count"] == "" {
		t.Errorf("stats %v, %v", stats, err)
	}
}

func TestEnsembleElectsAnotherLeader(t *testing.T) {
	e := servers.StartZooKeeperEnsemble(t, 3, servers.ZooKeeperOptions{})
	old := e.Leader()
	if n := len(e.Followers()); n != 2 {
		t.Errorf("%d followers, want 2", n)
	}
	old.Kill()
	if e.Leader() == old {
		t.Error("a killed server leads")
	}
	e.Restart(old)
	if mode, err := old.Mode(); mode != "follower" {
		t.Errorf("mode %q, %v, want a follower", mode, err)
	}
}
