package zkstore

import (
	"flag"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

var (
	readers = flag.Int("readers", 20, "how many clients hold one name")
	waiters = flag.Int("waiters", 50, "how many clients wait for one name")
)

func TestManyClientsUseOneName(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	admin := connect(t, server.Addr())
	parent, _ := (&Store{root: defaultRoot}).place(suites.CrowdName)
	for _, readers := range []int{0, *readers} {
		queued := func() (int, error) {
			exists := &wire.Call{Op: wire.Exists(parent, false)}
			err := admin.Do(t.Context(), exists)
			return int(exists.Stat.NumChildren) - max(1, readers), err
		}
		r := suites.Crowd(t, "zk://"+server.Addr(), readers, *waiters, queued)
		t.Logf("%d readers, %d waiters: %v", readers, *waiters, r)
		if limit := 5 * time.Second; r.Renewal > limit || r.HandOff > limit {
			t.Errorf("want %v at most", limit)
		}
	}
}
