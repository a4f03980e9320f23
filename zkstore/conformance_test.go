package zkstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// quick is a heartbeat that tests can wait for.
const quick = 1200 * time.Millisecond

// openQuick opens a URL with a quick heartbeat.
func openQuick(t testing.TB, url string) *Store {
	t.Helper()
	u, err := store.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := openWith(ctx, u, quick)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conform runs the suite.
func conform(t *testing.T, addrs ...string) {
	admin := connect(t, addrs...)
	storetest.Run(t, storetest.Harness{
		Open:    func(t testing.TB) store.Store { return openQuick(t, "zk://"+strings.Join(addrs, ",")+"?session=60s") },
		Residue: func(t testing.TB) []string { return nodes(t, admin, defaultRoot) },
		TTL:     500 * time.Millisecond,
		Slack:   500 * time.Millisecond,
	})
}

// connect opens a connection of the library, for a test's own questions.
func connect(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, time.Minute, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	limit := time.After(30 * time.Second)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn
			}
		case <-limit:
			t.Fatal("no session")
		}
	}
}

// nodes are all names below a root that are in use, with what is below them.
func nodes(t testing.TB, conn *zk.Conn, root string) (list []string) {
	t.Helper()
	if _, err := conn.Sync(root); err != nil && err != zk.ErrNoNode {
		t.Fatal(err)
	}
	read := func(path string) []string {
		children, _, err := conn.Children(path)
		if err != nil && err != zk.ErrNoNode {
			t.Fatal(err)
		}
		return children
	}
	for _, bucket := range read(root) {
		for _, name := range read(root + "/" + bucket) {
			path := root + "/" + bucket + "/" + name
			list = append(list, path)
			for _, child := range read(path) {
				list = append(list, path+"/"+child)
			}
		}
	}
	return list
}

func TestConformanceOfASingleServer(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	conform(t, server.Addr())
}

func TestConformanceOfThreeServers(t *testing.T) {
	ensemble := servers.StartZooKeeperEnsemble(t, 3, servers.ZooKeeperOptions{})
	conform(t, ensemble.Addrs()...)
}
