package servers

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

const (
	zooKeeperJar        = "/usr/share/java/zookeeper.jar" // of Debian; ZOOKEEPER_JAR overrides it
	zooKeeperTick       = 200 * time.Millisecond          // a tenth of the default; the shortest session is two ticks
	zooKeeperMaxSession = 15 * time.Minute                // longer than a test
	wordLimit           = 2 * time.Second                 // bounds one request to a server
)

// ZooKeeperOptions change a server without access control. Data survives a Restart, but is not synced to disk.
type ZooKeeperOptions struct {
	Config []string // further lines of zoo.cfg
	Java   []string // further options of the Java virtual machine

	// Route, if set, returns the address through which one server of an ensemble, given by its
	// index, reaches a port of another. It is called when the ensemble is prepared.
	Route func(from, to int, addr string) string
}

// A ZooKeeper is one server, either standalone or a member of an ensemble.
type ZooKeeper struct{ *Process }

// A ZooKeeperEnsemble is a group of servers that elect a leader.
type ZooKeeperEnsemble struct{ group[*ZooKeeper] }

// StartZooKeeper starts a single server and waits until it serves.
func StartZooKeeper(t testing.TB, opts ZooKeeperOptions) *ZooKeeper {
	t.Helper()
	z := newZooKeeper(t, 0, nil, opts)
	startAll(z)
	return z
}

// StartZooKeeperEnsemble starts n servers and waits until all of them serve.
func StartZooKeeperEnsemble(t testing.TB, n int, opts ZooKeeperOptions) *ZooKeeperEnsemble {
	t.Helper()
	e := &ZooKeeperEnsemble{group[*ZooKeeper]{t: t}}
	type peer struct{ quorum, election string } // addresses
	all := make([]peer, n)
	for i := range all {
		all[i] = peer{ports.Addr(ports.Reserve(t)), ports.Addr(ports.Reserve(t))}
	}
	for i := range n {
		var lines []string
		for j, p := range all {
			if opts.Route != nil && i != j {
				p = peer{opts.Route(i, j, p.quorum), opts.Route(i, j, p.election)}
			}
			_, election, _ := strings.Cut(p.election, ":")
			lines = append(lines, fmt.Sprintf("server.%d=%s:%s", j+1, p.quorum, election))
		}
		e.Nodes = append(e.Nodes, newZooKeeper(t, i+1, lines, opts))
	}
	e.Restart(e.Nodes...)
	return e
}

// newZooKeeper prepares a server. Id is its number in an ensemble, or 0 for a standalone server.
func newZooKeeper(t testing.TB, id int, peers []string, opts ZooKeeperOptions) *ZooKeeper {
	t.Helper()
	jar := cmp.Or(os.Getenv("ZOOKEEPER_JAR"), zooKeeperJar)
	if _, err := os.Stat(jar); err != nil {
		t.Fatalf("ZooKeeper is not installed: %v; run: make deps, or set ZOOKEEPER_JAR", err)
	}
	z := &ZooKeeper{newProcess(t)}
	config := append([]string{
		fmt.Sprintf("tickTime=%d", zooKeeperTick.Milliseconds()),
		"initLimit=50",
		"syncLimit=10",
		"dataDir=" + z.DataDir(),
		"clientPortAddress=127.0.0.1",
		fmt.Sprintf("clientPort=%d", z.Port),
		fmt.Sprintf("maxSessionTimeout=%d", zooKeeperMaxSession.Milliseconds()),
		"maxClientCnxns=0",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
	}, peers...)
	path := z.write("zoo.cfg", append(config, opts.Config...))
	args := slices.Concat([]string{
		"-Xmx128m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1",
		"-Dzookeeper.forceSync=no", // safe against SIGKILL, because the kernel keeps what was written
		"-Dzookeeper.jmx.log4j.disable=true",
		"-Dznode.container.checkIntervalMs=1000", // removes empty containers earlier than after a minute
	}, opts.Java, []string{"-cp", jar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", path})
	z.prepare(program{
		binary: "java",
		args:   args,
		ready:  func() error { _, err := z.Mode(); return err },
		init: func(string) {
			if id > 0 {
				z.write("data/myid", []string{fmt.Sprint(id)})
			}
		},
	})
	return z
}

// Word sends a four-letter command, such as "mntr", and returns the reply.
func (z *ZooKeeper) Word(word string) (string, error) {
	conn, err := net.DialTimeout("tcp", z.Addr(), wordLimit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(wordLimit))
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// Mode returns "standalone", "leader" or "follower", or an error if the server does not serve.
func (z *ZooKeeper) Mode() (string, error) {
	answer, err := z.Word("srvr")
	if err != nil {
		return "", err
	}
	_, mode, found := strings.Cut(answer, "Mode: ")
	if !found {
		return "", fmt.Errorf("%s does not serve: %s", z.Addr(), strings.TrimSpace(answer))
	}
	mode, _, _ = strings.Cut(mode, "\n")
	return mode, nil
}

// Stats returns the fields of mntr, such as "zk_znode_count".
func (z *ZooKeeper) Stats() (map[string]string, error) {
	answer, err := z.Word("mntr")
	return parseFields(answer, "\t"), err
}

// Leader returns the leader. It waits for the end of an election.
func (e *ZooKeeperEnsemble) Leader() *ZooKeeper {
	e.t.Helper()
	return pollFor(e.t, startLimit, func() (*ZooKeeper, error) {
		if leaders := e.inMode("leader"); len(leaders) > 0 {
			return leaders[0], nil
		}
		return nil, fmt.Errorf("no leader")
	})
}

// Followers returns the servers that currently follow a leader.
func (e *ZooKeeperEnsemble) Followers() []*ZooKeeper { return e.inMode("follower") }

func (e *ZooKeeperEnsemble) inMode(want string) []*ZooKeeper {
	return slices.DeleteFunc(awake(e.Nodes), func(z *ZooKeeper) bool {
		mode, err := z.Mode()
		return err != nil || mode != want
	})
}

// Restart starts servers again with their data, all before it waits for any: one alone might have no quorum.
func (e *ZooKeeperEnsemble) Restart(nodes ...*ZooKeeper) {
	e.t.Helper()
	for _, z := range nodes {
		z.Kill()
	}
	startAll(nodes...)
}
