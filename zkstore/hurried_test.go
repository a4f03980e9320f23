package zkstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// Calls that end after milliseconds must leave nothing behind for which others have to wait.
func TestCancelledCallsLeaveNothingBehind(t *testing.T) {
	server := servers.StartZooKeeper(t, servers.ZooKeeperOptions{})
	admin := connect(t, server.Addr())
	client := func() *holdfast.Client {
		c, err := holdfast.New(openQuick(t, "zk://"+server.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	var all sync.WaitGroup
	use := func(c *holdfast.Client, hurried bool) {
		for ctx.Err() == nil {
			call, cancel := ctx, context.CancelFunc(func() {})
			if hurried {
				call, cancel = context.WithTimeout(ctx, rand.N(10*time.Millisecond))
			}
			if l, err := c.Lock(call, fmt.Sprint("name:", rand.N(200))); err == nil {
				l.Unlock(context.Background())
			}
			cancel()
		}
	}
	for range 2 {
		c := client()
		for range 30 {
			all.Go(func() { use(c, true) })
		}
	}
	c := client()
	for range 20 {
		all.Go(func() { use(c, false) })
	}
	all.Wait()
	// Clean-up in the background takes a moment. A forgotten grant would stay for its TTL of 30 s.
	var left []string
	servers.Poll(t, 10*time.Second, func() error {
		left = slices.DeleteFunc(nodes(t, admin, defaultRoot), func(n string) bool { return strings.Count(n, "/") < 4 })
		if len(left) > 0 {
			return fmt.Errorf("nodes of requests: %v", left)
		}
		return nil
	})
}
