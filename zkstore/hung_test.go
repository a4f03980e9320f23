package zkstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/hungtest"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

func TestTimeLimitsWhileTheServerHangs(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	t.Parallel()
	proxy := faultproxy.Start(t, server.Addr())
	hungtest.Run(t, "zk://"+proxy.Addr(), "zk://"+server.Addr(), proxy.ToServer.Hold)
}
