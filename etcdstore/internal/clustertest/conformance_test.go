package clustertest

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-lock/holdfast/etcdstore"
	"github.com/holdfast-lock/holdfast/etcdstore/internal/etcdtest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// dial returns a client that belongs to the test.
func dial(t testing.TB, addrs []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A handle also closes its client, as a program does when it ends.
type handle struct {
	*etcdstore.Store
	client *clientv3.Client
}

func (h handle) Close() error {
	err := h.Store.Close()
	h.client.Close()
	return err
}

const ttl = 3 * time.Second

func TestConformanceOfThreeServers(t *testing.T) {
	// On a busy machine, a server may not hear from its leader for a second. The election timeout is
	// longer than that, and leases are at least one and a half times as long as the timeout.
	addrs := servers.StartEtcdCluster(t, 3, servers.EtcdOptions{
		Args: []string{"--heartbeat-interval=200", "--election-timeout=2000"},
	}).Addrs()
	look := dial(t, addrs)
	defer look.Close()
	etcdtest.Residue(t, look) // the first use of a server may leave keys behind
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store {
			client := dial(t, addrs)
			s, err := etcdstore.New(client)
			if err != nil {
				t.Fatal(err)
			}
			return handle{s, client}
		},
		Residue:  func(t testing.TB) []string { return etcdtest.Residue(t, look) },
		TTL:      ttl,
		Parallel: 6,
		Slack:    1500 * time.Millisecond, // a server expires leases twice a second, and reports whole seconds
	})
}
