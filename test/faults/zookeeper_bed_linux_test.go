package faults

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	_ "github.com/holdfast-lock/holdfast/zkstore"
)

// zooSession is the timeout of sessions, which is how long others wait if a process dies. It is
// long enough for leases of three times shortTTL.
const zooSession = 8 * time.Second

// longSession is longer than an election takes on a busy machine.
const longSession = 30 * time.Second

// A zoo is the part of an ensemble that one test uses: a root of its own.
type zoo struct {
	*servers.ZooKeeperEnsemble
	root    string
	session time.Duration
}

var (
	process servers.Host // of servers that tests share, because it takes too long to start them for each test
	zoos    atomic.Int64

	sharedZoo = sync.OnceValue(func() *servers.ZooKeeperEnsemble {
		return servers.StartZooKeeperEnsemble(&process, 3, quietZoo)
	})

	// quietZoo never removes empty containers. They do not disturb a test, but removing them would
	// make some requests need a second attempt.
	quietZoo = servers.ZooKeeperOptions{Java: []string{"-Dznode.container.checkIntervalMs=3600000"}}
)

// zookeeper returns a bed with a root of its own on the servers that all tests share.
func zookeeper(t testing.TB) *bed { return zooBed(t, sharedZoo(), zooSession) }

func zooBed(t testing.TB, e *servers.ZooKeeperEnsemble, session time.Duration) *bed {
	z := &zoo{e, fmt.Sprint("/test", zoos.Add(1)), session}
	return &bed{t: t, url: z.url(e.Addrs()...), zoo: z}
}

func (z *zoo) url(addrs ...string) string {
	return fmt.Sprintf("zk://%s%s?session=%v", strings.Join(addrs, ","), z.root, z.session)
}

// left returns an error that lists the nodes below the root, other than empty containers.
func (z *zoo) left() error {
	conn, _, err := zk.Connect(z.Addrs(), time.Minute, zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Sync(z.root); err != nil {
		return err
	}
	var list []string
	children := func(path string) []string {
		names, _, err := conn.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			list = append(list, err.Error())
		}
		return names
	}
	for _, bucket := range children(z.root) {
		for _, name := range children(z.root + "/" + bucket) {
			path := z.root + "/" + bucket + "/" + name
			for _, node := range children(path) {
				list = append(list, path+"/"+node)
			}
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("nodes: %v", list)
	}
	return nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}
