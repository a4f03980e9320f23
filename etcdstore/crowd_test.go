package etcdstore

import (
	"flag"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

var waiters = flag.Int("waiters", 50, "how many clients wait for one name")

func TestManyClientsWaitForOneName(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	look, keys := direct(t, server.Addr()), newKeys(defaultPrefix)
	queued := func() (int, error) {
		resp, err := look.Get(t.Context(), keys.key(suites.CrowdName, kindWaiting, 0)[:len(keys.name(suites.CrowdName))+1],
			clientv3.WithRange(keys.behind(suites.CrowdName)), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		return int(resp.Count), nil
	}
	r := suites.Crowd(t, url(server.Addr()), 0, *waiters, queued)
	t.Logf("%d waiters: %v", *waiters, r)
	if limit := 5 * time.Second; r.Renewal > limit || r.HandOff > limit {
		t.Errorf("want %v at most", limit)
	}
}
