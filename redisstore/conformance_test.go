package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/redis"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// quick is a heartbeat that tests can wait for.
const quick = time.Second

// openQuick opens a URL with a quick heartbeat.
func openQuick(t testing.TB, url string) *Store {
	t.Helper()
	u, err := store.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openWith(context.Background(), u, redis.Config{Heartbeat: quick})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conform runs the suite against servers. The first of them can be asked for all keys.
func conform(t *testing.T, url string, nodes ...*servers.Redis) {
	storetest.Run(t, storetest.Harness{
		Open:    func(t testing.TB) store.Store { return openQuick(t, url) },
		Residue: func(t testing.TB) []string { return residue(t, nodes...) },
		TTL:     500 * time.Millisecond,
		Slack:   500 * time.Millisecond,
	})
}

// residue is everything on the servers that is not meant to stay.
func residue(t testing.TB, nodes ...*servers.Redis) (left []string) {
	t.Helper()
	for _, node := range nodes {
		for _, key := range node.Must("KEYS", "*").([]any) {
			if key := key.(string); !strings.HasSuffix(key, ":token") {
				left = append(left, key)
			}
		}
	}
	return left
}

func TestConformanceOfASingleServer(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	conform(t, "redis://"+server.Addr(), server)
}

func TestConformanceOfSentinel(t *testing.T) {
	group := servers.StartSentinel(t, 2, 3, servers.RedisOptions{})
	conform(t, "redis+sentinel://"+strings.Join(group.Addrs(), ",")+"/"+servers.SentinelName, group.Primary())
}

func TestConformanceOfACluster(t *testing.T) {
	cluster := servers.StartCluster(t, servers.RedisOptions{})
	conform(t, "redis+cluster://"+strings.Join(cluster.Addrs(), ","), cluster.Nodes[:3]...)
}
