package zkstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

func TestTimeLimitsWhileTheServerHangs(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	t.Parallel()
	proxy := faultproxy.Start(t, server.Addr())
	suites.Hung(t, "zk://"+proxy.Addr(), "zk://"+server.Addr(), proxy.ToServer.Hold)
}
