package clustertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-lock/holdfast/etcdstore"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// dial makes a client of the test's own.
func dial(t testing.TB, addrs []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A handle closes its client as well, as a program does that ends.
type handle struct {
	*etcdstore.Store
	client *clientv3.Client
}

func (h handle) Close() error {
	err := h.Store.Close()
	h.client.Close()
	return err
}

func TestConformanceOfThreeServers(t *testing.T) {
	addrs := servers.StartEtcdCluster(t, 3, servers.EtcdOptions{}).Addrs()
	conform(t, addrs, addrs, storetest.Harness{
		TTL:      time.Second,
		Parallel: 4,
		Slack:    1500 * time.Millisecond, // a server looks for what is over twice a second, and tells whole seconds
	})
}

// A proxy numbers watches by itself, replies to keep-alives in any order, and sends keep-alives
// of its own.
func TestConformanceBehindAGRPCProxy(t *testing.T) {
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy := servers.StartEtcdProxy(t, server.Addr())
	conform(t, []string{server.Addr()}, []string{proxy.Addr()}, storetest.Harness{
		TTL:      3 * time.Second, // a keep-alive takes half of a second
		Parallel: 32,
		Slack:    2500 * time.Millisecond,
	})
}

// conform runs the suite through some addresses, and looks at the servers through others.
func conform(t *testing.T, direct, through []string, h storetest.Harness) {
	look := dial(t, direct)
	defer look.Close()
	residue(t, look) // whatever it starts with the first use
	h.Open = func(t testing.TB) store.Store {
		client := dial(t, through)
		// Long enough for twenty waiters to join one after the other on a busy machine.
		return handle{etcdstore.New(client, etcdstore.Heartbeat(6*time.Second), etcdstore.MinTTL(time.Second)), client}
	}
	h.Residue = func(t testing.TB) []string { return residue(t, look) }
	storetest.Run(t, h)
}

// residue is every key and lease on the servers that is not meant to stay.
func residue(t testing.TB, client *clientv3.Client) (left []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	keys, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range keys.Kvs {
		if key := string(kv.Key); !strings.HasSuffix(key, "/floor") {
			left = append(left, key)
		}
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Leases {
		left = append(left, fmt.Sprintf("lease %x", l.ID))
	}
	return left
}
