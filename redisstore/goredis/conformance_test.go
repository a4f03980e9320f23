package goredis

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// An owning store also closes its client, so that a test leaves nothing behind.
type owning struct {
	*Store
	client redis.UniversalClient
}

func (o owning) Close() error {
	err := o.Store.Close()
	o.client.Close()
	return err
}

func conform(t *testing.T, newClient func() redis.UniversalClient, nodes ...*servers.Redis) {
	redistest.Conform(t, func(t testing.TB) store.Store {
		client := newClient()
		s, err := New(t.Context(), client, redistest.Quick)
		if err != nil {
			t.Fatal(err)
		}
		return owning{s, client}
	}, nodes...)
}

func TestConformanceOfASingleServer(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	conform(t, func() redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: server.Addr()})
	}, server)
}

func TestConformanceOfSentinel(t *testing.T) {
	group := servers.StartSentinel(t, 2, 3, servers.RedisOptions{})
	conform(t, func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: servers.SentinelName, SentinelAddrs: group.Addrs()})
	}, group.Primary())
}

func TestConformanceOfACluster(t *testing.T) {
	cluster := servers.StartCluster(t, servers.RedisOptions{})
	conform(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	}, cluster.Nodes[:3]...)
}

func TestRedisCluster(t *testing.T) {
	redistest.RunCluster(t, func(t testing.TB, addrs []string) store.Store {
		return mustNew(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), redistest.Quick)
	})
}
