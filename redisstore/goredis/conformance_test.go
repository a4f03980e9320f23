package goredis

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// quick is a heartbeat that tests can wait for.
const quick = time.Second

// owning is a store that closes its client, so that nothing is left of a test.
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
	storetest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store {
			client := newClient()
			s, err := New(client, func(c *rediscore.Config) { c.Heartbeat = quick })
			if err != nil {
				t.Fatal(err)
			}
			return owning{s, client}
		},
		Residue: func(t testing.TB) (left []string) {
			for _, node := range nodes {
				for _, key := range node.Must("KEYS", "*").([]any) {
					if key := key.(string); !strings.HasSuffix(key, ":token") {
						left = append(left, key)
					}
				}
			}
			return left
		},
		TTL:   500 * time.Millisecond,
		Slack: 500 * time.Millisecond,
	})
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
