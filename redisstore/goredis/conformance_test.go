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

// The store is that of package redisstore, which runs the suite on all kinds of servers. Only with
// Sentinel it has connections of another kind.
func TestConformanceOfSentinel(t *testing.T) {
	group := servers.StartSentinel(t, 2, 3, servers.RedisOptions{})
	redistest.Conform(t, func(t testing.TB) store.Store {
		client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: servers.SentinelName, SentinelAddrs: group.Addrs()})
		s, err := New(t.Context(), client, redistest.Quick)
		must(t, err)
		return owning{s, client}
	}, group.Primary())
}
