package goredis

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

func TestDiagnoseASingleServer(t *testing.T) {
	for name, protocol := range map[string]int{"RESP2": 2, "RESP3": 3} {
		t.Run(name, func(t *testing.T) {
			redistest.DiagnoseSingle(t, func(t testing.TB, addr string) store.Store {
				return mustNew(t, redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol}))
			})
		})
	}
}

func TestDiagnoseSentinel(t *testing.T) {
	redistest.DiagnoseSentinel(t, func(t testing.TB, addrs []string) store.Store {
		return mustNew(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: servers.SentinelName, SentinelAddrs: addrs}))
	})
}

func TestDiagnoseACluster(t *testing.T) {
	redistest.DiagnoseCluster(t, func(t testing.TB, addrs []string) store.Store {
		return mustNew(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}))
	})
}
