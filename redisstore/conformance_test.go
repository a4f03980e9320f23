package redisstore

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// openQuick opens a URL with a short heartbeat.
func openQuick(t testing.TB, url string) *Store {
	t.Helper()
	u, err := store.ParseURL(url)
	must(t, err)
	s, err := openWith(context.Background(), u, rediscore.Config{Heartbeat: redistest.Heartbeat})
	must(t, err)
	return s
}

func byURL(url string) func(testing.TB) store.Store {
	return func(t testing.TB) store.Store { return openQuick(t, url) }
}

func TestConformanceOfASingleServer(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	redistest.Conform(t, byURL("redis://"+server.Addr()), server)
}

func TestCompareASingleServer(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	storetest.Compare(t, redistest.Harness(byURL("redis://"+server.Addr()), server), storetest.CompareOptions{})
}

func TestCompareACluster(t *testing.T) {
	cluster := servers.StartCluster(t, servers.RedisOptions{})
	open := byURL("redis+cluster://" + strings.Join(cluster.Addrs(), ","))
	storetest.Compare(t, redistest.Harness(open, cluster.Nodes[:3]...), storetest.CompareOptions{Sequences: 500})
}

// The clients belong to the test and are used before the suite starts to count goroutines,
// because rueidis needs seconds to end the goroutines of a closed Cluster client.
func TestConformanceOfACluster(t *testing.T) {
	cluster := servers.StartCluster(t, servers.RedisOptions{})
	u, err := store.ParseURL("redis+cluster://" + strings.Join(cluster.Addrs(), ","))
	must(t, err)
	option, err := optionOf(u, new(rediscore.Config))
	must(t, err)
	setEngine(&option)
	clients := make([]rueidis.Client, 8)
	for i := range clients {
		clients[i] = newClient(t, option)
		var wg sync.WaitGroup
		for key := range 300 {
			wg.Go(func() {
				for range 10 {
					clients[i].Do(t.Context(), clients[i].B().Get().Key(strconv.Itoa(key)).Build())
				}
			})
		}
		wg.Wait()
		for _, node := range clients[i].Nodes() { // including replicas, because a listing asks for their role
			node.Do(t.Context(), node.B().Role().Build())
		}
	}
	var mu sync.Mutex
	opened := make(map[string]int) // by test, so that the stores of a test have different clients
	open := func(t testing.TB) store.Store {
		mu.Lock()
		opened[t.Name()]++
		next := opened[t.Name()]
		mu.Unlock()
		s, err := New(clients[next%len(clients)], redistest.Quick)
		must(t, err)
		return s
	}
	redistest.Conform(t, open, cluster.Nodes[:3]...)
}
