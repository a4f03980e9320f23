package zkstore

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// quick is a heartbeat that is short enough for tests to wait for.
const quick = 3 * time.Second

// openQuick opens a URL with a short heartbeat.
func openQuick(t testing.TB, url string) *Store {
	t.Helper()
	u, err := store.ParseURL(url)
	must(t, err)
	opened, err := open(suites.Limited(t), u)
	must(t, err)
	s := opened.(*Store)
	s.heartbeat = quick
	t.Cleanup(func() { s.Close() })
	return s
}

func harness(a admin, addrs ...string) storetest.Harness {
	return storetest.Harness{
		// A session limits the TTL. This one allows the longest TTL that the suite asks for, because
		// a test may take a minute on a machine with a slow disk.
		Open:    func(t testing.TB) store.Store { return openQuick(t, "zk://"+strings.Join(addrs, ",")+"?session=15m") },
		Residue: func(t testing.TB) []string { return nodes(t, a, defaultRoot) },
		// On a busy machine, a call may take a second.
		TTL:      2 * time.Second,
		Slack:    time.Second,
		Parallel: 6,
	}
}

// An admin is a connection through which a test reads the servers.
type admin struct{ *wire.Conn }

func connect(t testing.TB, addrs ...string) admin {
	t.Helper()
	a := admin{wire.Dial(wire.Options{
		Servers: addrs, Timeout: time.Minute,
		Session: func(int64, time.Duration) {}, Event: func(string, bool) {},
	})}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
		defer cancel()
		a.Close(ctx, true)
	})
	return a
}

// children returns the children of a node, after the server has caught up.
func (a admin) children(t testing.TB, path string) []string {
	t.Helper()
	list := &wire.Call{Op: wire.Children(path, false)}
	if err := a.Do(suites.Limited(t), &wire.Call{Op: wire.Sync(path)}, list); ignoreNoNode(err) != nil {
		t.Fatal(err)
	}
	return list.Children
}

// nodes returns the nodes of all names in use, and their children.
func nodes(t testing.TB, a admin, root string) (list []string) {
	t.Helper()
	for _, bucket := range a.children(t, root) {
		for _, name := range a.children(t, root+"/"+bucket) {
			path := root + "/" + bucket + "/" + name
			list = append(list, path)
			for _, child := range a.children(t, path) {
				list = append(list, path+"/"+child)
			}
		}
	}
	return list
}

// currentSession returns the ID of the session.
func (s *Store) currentSession() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// die ends a store without informing the servers, as if its process was killed.
func (s *Store) die() {
	s.wire.Close(context.Background(), false)
	s.Close()
}

func TestCompareASingleServer(t *testing.T) {
	addr := servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr()
	h := harness(connect(t, addr), addr)
	h.Slack = 2 * time.Second // dead waiters are removed by their own client, which is busy here
	storetest.Compare(t, h, storetest.CompareOptions{Sequences: 300})
}

// apartEnv is the environment variable that makes the test binary run the suite on these servers.
const apartEnv = "HOLDFAST_ZOOKEEPER_SERVERS"

// The suite runs in a separate process, because it counts goroutines. It runs in parallel with other
// tests, because it waits most of the time.
func TestConformanceOfThreeServers(t *testing.T) {
	apart := os.Getenv(apartEnv)
	addrs := strings.Split(apart, ",")
	if apart == "" { // not in parallel, because starting servers needs the whole machine
		addrs = servers.StartZooKeeperEnsemble(t, 3, servers.ZooKeeperOptions{}).Addrs()
	}
	if apart != "" || testing.CoverMode() != "" {
		storetest.Run(t, harness(connect(t, addrs...), addrs...))
		return
	}
	t.Parallel()
	binary, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), apartEnv+"="+strings.Join(addrs, ","))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	} else if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("the suite did not run:\n%s", out)
	}
}

func TestMain(m *testing.M) {
	// Most tests wait most of the time.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("8")
	}
	os.Exit(m.Run())
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
