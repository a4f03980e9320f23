// Package redistest holds the tests that the stores on Redis share, whatever their client library.
package redistest

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// Heartbeat is short enough for tests to wait for.
const Heartbeat = time.Second

// Quick is an option of the stores: it sets Heartbeat.
func Quick(c *rediscore.Config) { c.Heartbeat = Heartbeat }

// Conform runs the conformance suite against servers.
func Conform(t *testing.T, open func(testing.TB) store.Store, nodes ...*servers.Redis) {
	storetest.Run(t, Harness(open, nodes...))
}

// Harness connects package storetest to servers.
func Harness(open func(testing.TB) store.Store, nodes ...*servers.Redis) storetest.Harness {
	return storetest.Harness{
		Open:     open,
		Residue:  func(t testing.TB) []string { return Residue(t, nodes...) },
		TTL:      2 * time.Second, // on a busy machine, a call may take a second
		Slack:    time.Second,
		Parallel: 8,
	}
}

// Residue returns the keys on the servers, without the counters of tokens and what clients of a quorum tell
// each other, which stay.
func Residue(t testing.TB, nodes ...*servers.Redis) (left []string) {
	t.Helper()
	for _, node := range nodes {
		for _, key := range node.Must("KEYS", "*").([]any) {
			if key := key.(string); !strings.HasSuffix(key, ":token") && !strings.HasSuffix(key, ":holdfast:quorum:clients") {
				left = append(left, key)
			}
		}
	}
	return left
}

// ClusterLockKey returns the key of a lock on a Cluster, which determines its slot.
func ClusterLockKey(name string) string {
	h := fnv.New32a()
	h.Write([]byte(name))
	return fmt.Sprintf("%s{%d}:lock:%s", rediscore.Prefix, h.Sum32()%1024, name)
}
