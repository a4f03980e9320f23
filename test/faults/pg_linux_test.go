package faults

import (
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// An asynchronous replica may not have the newest grants. The new primary grants those names
// again, and its tokens are higher, because they follow the clock.
func TestPostgresAFailoverLosesAGrantThatTheReplicaNeverSawAndTheTokenTellsThemApart(t *testing.T) {
	t.Parallel()
	b := ownPostgres(t, servers.PostgresOptions{})
	h, resource := new(History), new(counter)
	client := b.open()
	record(h).must(t, client, "n", longTTL).mustUnlock(t)
	replica := b.pg.StartReplica(t)
	replica.Must("ALTER SYSTEM SET primary_conninfo = ''") // as if the network between the servers were down
	replica.Must("SELECT pg_reload_conf()")
	eventually(t, "the replica follows no more", func() error {
		if n := replica.Value("SELECT count(*) FROM pg_stat_wal_receiver WHERE pid IS NOT NULL"); n != "0" {
			return errors.New("it does")
		}
		return nil
	})
	_, next := grantedTwice(t, h, resource, client, longTTL, func() *holdfast.Client {
		b.pg.Kill()
		replica.Promote()
		return openURL(t, b.pg.url(replica.Addr()))
	})
	check(t, h.CheckTokens())
	next.mustUnlock(t)
}
