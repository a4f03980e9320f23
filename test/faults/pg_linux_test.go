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

// With synchronous replication a grant waits for the replica, and survives the failover.
func TestPostgresWithSynchronousReplicationAGrantSurvivesAFailover(t *testing.T) {
	t.Parallel()
	b := ownPostgres(t, servers.PostgresOptions{})
	client := b.open()
	replica := b.pg.StartReplica(t)
	b.pg.Must("ALTER SYSTEM SET synchronous_standby_names = 'replica'")
	b.pg.Must("SELECT pg_reload_conf()")
	eventually(t, "the replica is synchronous", func() error {
		if n := b.pg.Value("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"); n != "1" {
			return errors.New("it is not")
		}
		return nil
	})
	old, err := client.Lock(t.Context(), "n", holdfast.TTL(longTTL))
	check(t, err)
	b.pg.Kill()
	replica.Promote()
	replica.Must("ALTER SYSTEM RESET synchronous_standby_names")
	replica.Must("SELECT pg_reload_conf()")
	other := openURL(t, b.pg.url(replica.Addr()))
	if _, err := other.TryLock(t.Context(), "n"); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("after the failover: %v, want that the old holder still has the lock", err)
	}
	info, err := other.Inspect(t.Context(), "n")
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Token != old.Token() {
		t.Errorf("%+v, %v; want the grant with token %d", info, err, old.Token())
	}
}
