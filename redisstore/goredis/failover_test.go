package goredis

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// No connection ends and no call fails, so only the Sentinels can tell that there is a new primary.
func TestAnOldPrimaryThatSentinelsCannotDemoteIsLeft(t *testing.T) {
	group := servers.StartSentinel(t, 1, 1, servers.RedisOptions{})
	s := mustNew(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: servers.SentinelName, SentinelAddrs: group.Addrs()}))
	suites.Granted(t, s, suites.Request("n")) // connects
	old := group.Primary()
	old.Must("ACL", "SETUSER", "default", "-slaveof", "-replicaof", "-client|kill")
	group.Sentinels[0].Must("SENTINEL", "FAILOVER", servers.SentinelName)
	next := group.AwaitFailover(old)
	poll(t, func() error {
		req := suites.Request("m")
		if _, err := s.Acquire(t.Context(), req); err != nil {
			return err
		}
		if next.Must("EXISTS", "holdfast:lock:m") != int64(1) {
			return errors.Join(errors.New("locks are taken on the old primary"), s.Leave(t.Context(), "m", req.ID))
		}
		return nil
	})
}
