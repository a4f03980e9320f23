package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// isolate ends the replication of a primary, which then rejects its replicas when they reconnect.
// Grants that it makes from now on are lost with it.
func isolate(t testing.TB, b *bed) *servers.Redis {
	t.Helper()
	primary := b.primary()
	primary.Must("ACL", "SETUSER", "default", "-psync", "-sync")
	primary.Must("CLIENT", "KILL", "TYPE", "replica")
	eventually(t, "the primary has no replicas", func() error {
		info, err := primary.Info("replication")
		if err == nil && info["connected_slaves"] != "0" {
			err = errors.New("it has " + info["connected_slaves"])
		}
		return err
	})
	return primary
}

// replacePrimary kills the primary and waits for the next one.
func replacePrimary(b *bed) {
	b.t.Helper()
	old := b.primary()
	old.Kill()
	b.group.AwaitFailover(old)
}

// failOver makes the Sentinels choose another primary. On a busy machine they may give up.
func failOver(b *bed) {
	b.t.Helper()
	old := b.primary()
	eventually(b.t, "the Sentinels choose another primary", func() error {
		b.group.Sentinels[0].Do("SENTINEL", "FAILOVER", servers.SentinelName)
		for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(20 * time.Millisecond) {
			if b.primary() != old {
				return nil
			}
		}
		return errNotYet
	})
}

// Asynchronous replicas may not have the newest grants. The new primary grants those names again, and its tokens
// are higher, because they follow the clock.
func TestAFailoverLosesAGrantThatTheReplicasNeverSawAndTheTokenTellsThemApart(t *testing.T) {
	t.Parallel()
	loses := func(part func(b *bed) (failOver func() *holdfast.Client)) func(t *testing.T, b *bed) {
		return func(t *testing.T, b *bed) {
			h, resource := new(History), new(counter)
			client := b.open()
			record(h).must(t, client, "n", longTTL).mustUnlock(t)
			var other *holdfast.Client
			failOver := part(b)
			_, next := grantedTwice(t, h, resource, client, longTTL, func() *holdfast.Client { other = failOver(); return other })
			check(t, h.CheckTokens())
			check(t, resource.check())
			next.mustUnlock(t)
			if b.group != nil {
				b.close(client) // it may not know the new primary yet
				b.clean(soon, client, other)
			}
		}
	}
	on(t, "Sentinel", sentinel, loses(func(b *bed) func() *holdfast.Client {
		isolate(b.t, b)
		return func() *holdfast.Client {
			replacePrimary(b)
			return b.open()
		}
	}))
	ownPostgres := func(t testing.TB) *bed { return postgresOn(t, servers.StartPostgres(t, servers.PostgresOptions{})) }
	on(t, "PostgreSQL", ownPostgres, loses(func(b *bed) func() *holdfast.Client {
		replica := b.pg.StartReplica(b.t)
		replica.Must("ALTER SYSTEM SET primary_conninfo = ''") // as if the network between the servers were down
		replica.Must("SELECT pg_reload_conf()")
		eventually(b.t, "the replica follows no more", func() error {
			if n := replica.Value("SELECT count(*) FROM pg_stat_wal_receiver WHERE pid IS NOT NULL"); n != "0" {
				return errors.New("it does")
			}
			return nil
		})
		return func() *holdfast.Client {
			b.pg.Kill()
			replica.Promote()
			return openURL(b.t, b.pg.url(replica.Addr()))
		}
	}))
}

func TestWithReplicasAwaitedAGrantOrRecordThatAFailoverCouldLoseIsAnError(t *testing.T) {
	t.Parallel()
	b := sentinel(t)
	b.url += "?replicas=1"
	h, resource := new(History), new(counter)
	client, other := b.open(), b.open()
	record(h).must(t, client, "n", longTTL).mustUnlock(t)
	isolate(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := record(h).lock(ctx, client, "n", longTTL, holdfast.Retry(holdfast.MaxAttempts(2, holdfast.Every(50*time.Millisecond))))
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "replicas") {
		t.Errorf("no replica has the grant: %v, want ErrUnavailable that says so", err)
	}
	replacePrimary(b)
	next := record(h).must(t, other, "n", longTTL, patient)
	check(t, resource.add(next.Token()))
	next.mustUnlock(t)
	check(t, h.Check())
	check(t, resource.check())
	err = other.Once(t.Context(), "done", longTTL, func(context.Context) error {
		isolate(t, b)
		return nil
	})
	if !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("the record is on no replica: %v, want ErrUnavailable", err)
	}
}

func TestWithReplicasAwaitedAGrantSurvivesAFailover(t *testing.T) {
	t.Parallel()
	b := sentinel(t)
	b.url += "?replicas=1"
	h, resource := new(History), new(counter)
	client, other := b.open(), b.open()
	lease := record(h).must(t, client, "n", longTTL)
	over := lease.watch()
	check(t, resource.add(lease.Token()))
	replacePrimary(b)
	wantHeld(t, other, "n")
	check(t, retry(func() error { return lease.Renew(t.Context()) }))
	check(t, resource.add(lease.Token()))
	lease.mustUnlock(t)
	ends(t, "the watch", over)
	next := record(h).must(t, other, "n", longTTL)
	check(t, resource.add(next.Token()))
	next.mustUnlock(t)
	check(t, h.Check())
	check(t, resource.check())
	b.clean(soon, client, other)
}

// wantHeld checks that TryLock knows the holder.
func wantHeld(t *testing.T, c *holdfast.Client, name string) {
	t.Helper()
	err := retry(func() error { _, err := c.TryLock(t.Context(), name); return err })
	if !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("TryLock of %s: %v, want ErrHeld", name, err)
	}
}

// The old primary grants locks until it is demoted, a moment after the replica was promoted. But that
// replica does not confirm them.
func TestWithAllReplicasAwaitedAPlannedFailoverMakesNoSecondHolder(t *testing.T) {
	t.Parallel()
	b := sentinel(t)
	b.url += "?replicas=2"
	h, resource := new(History), new(counter)
	client, other := b.open(), b.open()
	lease := record(h).must(t, client, "held", longTTL)
	over := lease.watch()
	stop := b.busy(h, resource, 3, b.open)
	for range 2 {
		progress(t, resource, "all replicas follow")
		b.group.AwaitSentinels() // they know all replicas
		failOver(b)
		wantHeld(t, other, "held")
		check(t, retry(func() error { return lease.Renew(t.Context()) }))
	}
	progress(t, resource, "all replicas follow again")
	lease.mustLive(t, over)
	lease.mustUnlock(t)
	b.close(client, other)
	stop()
}

// A planned failover begins with the promotion of a replica. Until it is demoted, the old primary still
// has the other replica.
func TestAfterAPromotionTheOldPrimaryGrantsNothingThatAllReplicasMustConfirm(t *testing.T) {
	t.Parallel()
	b := sentinel(t)
	h := new(History)
	one, all := openURL(t, b.url+"?replicas=1"), openURL(t, b.url+"?replicas=2")
	lease := record(h).must(t, all, "held", longTTL)
	primary := b.primary()
	promoted := b.nodes[(slices.Index(b.nodes, primary)+1)%len(b.nodes)]
	promoted.Must("REPLICAOF", "NO", "ONE")
	next := openURL(t, "redis://"+promoted.Addr()) // a client that has found the new primary

	_, err := all.TryLock(t.Context(), "all")
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "only 1 of 2 replicas") {
		t.Errorf("%v, want that only one replica confirmed", err)
	}
	// This shows the weakness of fewer replicas: the new primary has not received the grant.
	first := record(h).must(t, one, "one", longTTL)
	second := record(h).must(t, next, "one", longTTL)
	if !first.believes() {
		t.Errorf("the double grant was not shown: the old holder knows already: %v", first.Err())
	}
	if second.Token() <= first.Token() {
		t.Errorf("T: token %d after %d", second.Token(), first.Token())
	}
	wantHeld(t, next, "held")
	if !lease.believes() {
		t.Errorf("a grant that all replicas confirmed was lost: %v", lease.Err())
	}
}

// A program that has lost its connections needs a Sentinel to find the primary.
func TestAHungSentinelDoesNotKeepClientsFromThePrimary(t *testing.T) {
	t.Parallel()
	b := sentinel(t)
	client := b.open()
	record(new(History)).must(t, client, "n", longTTL).mustUnlock(t)
	used := slices.IndexFunc(b.group.Sentinels, func(s *servers.Redis) bool { return len(connections(s)) > 0 })
	if used < 0 {
		t.Fatal("the client has no connection to a Sentinel")
	}
	b.group.Sentinels[used].Stop()
	defer b.group.Sentinels[used].Continue()
	killConnections(b.primary())
	record(new(History)).must(t, client, "n", longTTL, patient).mustUnlock(t)
}

func TestAnOldPrimaryThatSentinelsCannotDemoteIsLeft(t *testing.T) {
	t.Parallel()
	b := sentinel(t)
	client, other := b.open(), b.open()
	handOff := func() time.Duration {
		lease := record(new(History)).must(t, client, "n", longTTL, patient)
		waiting := record(new(History)).later(t, t.Context(), other, "n", longTTL, patient)
		b.queued(client, "n", 1)
		begin := time.Now()
		lease.mustUnlock(t)
		waiting.get(limit).mustUnlock(t)
		return time.Since(begin)
	}
	handOff()
	old := b.primary()
	// The old primary stays a primary for the connected clients, and keeps their connections.
	old.Must("ACL", "SETUSER", "default", "-slaveof", "-replicaof", "-client|kill")
	failOver(b)
	next := b.primary()
	for i, c := range []*holdfast.Client{client, other} {
		name := fmt.Sprint("n", i)
		within(t, soon, "locks are taken on the new primary", func() error {
			lease, err := c.TryLock(t.Context(), name)
			if err != nil {
				return err
			}
			defer lease.Unlock(t.Context())
			if next.Must("EXISTS", lockKey(b, name)) != int64(1) {
				return errors.New("it is on the old one")
			}
			return nil
		})
	}
	within(t, soon, "hand-offs are fast", func() error {
		if took := handOff(); took > 2*time.Second {
			return fmt.Errorf("one took %v", took)
		}
		return nil
	})
	old.Must("ACL", "SETUSER", "default", "+@all")
	b.clean(soon, client, other)
}
