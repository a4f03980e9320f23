package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
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
	s, err := openWith(context.Background(), u, rediscore.Config{Heartbeat: quick})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// conform runs the suite against servers.
func conform(t *testing.T, open func(testing.TB) store.Store, nodes ...*servers.Redis) {
	storetest.Run(t, storetest.Harness{
		Open:    open,
		Residue: func(t testing.TB) []string { return residue(t, nodes...) },
		TTL:     500 * time.Millisecond,
		Slack:   500 * time.Millisecond,
	})
}

func byURL(url string) func(testing.TB) store.Store {
	return func(t testing.TB) store.Store { return openQuick(t, url) }
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
	conform(t, byURL("redis://"+server.Addr()), server)
}

func TestConformanceOfSentinel(t *testing.T) {
	group := servers.StartSentinel(t, 2, 3, servers.RedisOptions{})
	conform(t, byURL("redis+sentinel://"+strings.Join(group.Addrs(), ",")+"/"+servers.SentinelName), group.Primary())
}

// With clients of the program's own, which are in full use before the suite begins to count
// goroutines: rueidis needs seconds to forget a client of a Cluster.
func TestConformanceOfACluster(t *testing.T) {
	cluster := servers.StartCluster(t, servers.RedisOptions{})
	u, err := store.ParseURL("redis+cluster://" + strings.Join(cluster.Addrs(), ","))
	if err != nil {
		t.Fatal(err)
	}
	option, err := optionOf(u)
	if err != nil {
		t.Fatal(err)
	}
	clients := make([]rueidis.Client, 8)
	for i := range clients {
		if clients[i], err = rueidis.NewClient(option); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(clients[i].Close)
		var wg sync.WaitGroup
		for key := range 300 {
			wg.Go(func() {
				for range 10 {
					clients[i].Do(t.Context(), clients[i].B().Get().Key(strconv.Itoa(key)).Build())
				}
			})
		}
		wg.Wait()
	}
	next := 0
	open := func(testing.TB) store.Store {
		next++
		return New(clients[next%len(clients)], func(c *rediscore.Config) { c.Heartbeat = quick })
	}
	conform(t, open, cluster.Nodes[:3]...)
}
