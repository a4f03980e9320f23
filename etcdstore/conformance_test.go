package etcdstore

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-lock/holdfast/etcdstore/internal/etcdtest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

const (
	// quick is the shortest TTL that the servers of tests grant.
	quick = time.Second

	// quickBeat is a heartbeat that is short enough for tests to wait for, and long enough for
	// twenty waiters to join one after the other on a busy machine. slowBeat is longer than a
	// test takes.
	quickBeat = 3 * time.Second
	slowBeat  = 5 * time.Second
)

// openQuick opens a URL with the given heartbeat.
func openQuick(t testing.TB, url string, heartbeat time.Duration) *Store {
	t.Helper()
	u, err := store.ParseURL(url)
	noError(t, err)
	var s *Store
	servers.Poll(t, patience, func() error { // on a busy machine there may be an election
		s, err = openWith(context.Background(), u, config{heartbeat: heartbeat, minTTL: quick})
		return err
	})
	t.Cleanup(func() { s.Close() })
	return s
}

// direct returns a client through which a test reads the servers.
func direct(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	return directAs(t, clientv3.Config{Endpoints: addrs})
}

func directAs(t testing.TB, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger, config.DialTimeout = zap.NewNop(), dialTimeout
	client, err := clientv3.New(config)
	noError(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

// The suite runs on three servers: see package clustertest. Both run at the same time.
func TestCompareASingleServer(t *testing.T) {
	addr := servers.StartEtcd(t, servers.EtcdOptions{}).Addr()
	storetest.Compare(t, harness(addr, direct(t, addr)), storetest.CompareOptions{Sequences: 300})
}

func harness(addr string, client *clientv3.Client) storetest.Harness {
	return storetest.Harness{
		Open:     func(t testing.TB) store.Store { return openQuick(t, url(addr), quickBeat) },
		Residue:  func(t testing.TB) []string { return etcdtest.Residue(t, client) },
		TTL:      2 * quick,
		Parallel: 6,
		Slack:    1500 * time.Millisecond, // a server expires leases twice a second, and reports whole seconds
	}
}

func TestMain(m *testing.M) {
	// Most tests wait most of the time: for leases to end, and for servers to start.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("6")
	}
	os.Exit(m.Run())
}

// noError ends the test if there is an error.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
