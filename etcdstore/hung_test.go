package etcdstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

func TestTimeLimitsWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy := faultproxy.Start(t, server.Addr())
	suites.Hung(t, "etcd://"+proxy.Addr(), "etcd://"+server.Addr(), proxy.ToServer.Hold)
}
