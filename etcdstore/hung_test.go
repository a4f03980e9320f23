package etcdstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/hungtest"
	"github.com/holdfast-lock/holdfast/internal/servers"
)

func TestTimeLimitsWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy := faultproxy.Start(t, server.Addr())
	hungtest.Run(t, "etcd://"+proxy.Addr(), "etcd://"+server.Addr(), proxy.ToServer.Hold)
}
