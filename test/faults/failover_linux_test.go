package faults

import (
	"context"
	"errors"
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

func TestAFailoverLosesAGrantThatTheReplicasNeverSawAndTheTokenTellsThemApart(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		h, resource := new(History), new(counter)
		client, other := b.open(), b.open()
		record(h).must(t, client, "n", longTTL).mustUnlock(t)

		primary := isolate(t, b)
		old := record(h).must(t, client, "n", longTTL)
		read, err := resource.read(old.Token())
		if err != nil {
			t.Fatal(err)
		}
		primary.Kill()
		b.group.AwaitFailover(primary)

		// This shows the weakness: the new primary grants the lock while the lease of the old
		// holder is still valid.
		next := record(h).must(t, other, "n", longTTL, holdfast.Retry(holdfast.Every(50*time.Millisecond)))
		if !old.believes() {
			t.Errorf("the double grant was not shown: the old holder knows already: %v", old.Err())
		}
		value, err := resource.read(next.Token())
		if err != nil {
			t.Fatalf("the token of the new primary is too low: %v", err)
		}
		wantStale(t, resource.write(old.Token(), read))
		check(t, resource.write(next.Token(), value))
		check(t, h.CheckTokens())
		check(t, resource.check())
		next.mustUnlock(t)
		b.close(client) // this client may not know the new primary yet
		b.clean(soon, client, other)
	})
}

func TestWithReplicasAwaitedAGrantThatAFailoverCouldLoseIsAnError(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		h, resource := new(History), new(counter)
		url := b.url + "?replicas=1"
		client, other := openURL(t, url), openURL(t, url)
		record(h).must(t, client, "n", longTTL).mustUnlock(t)

		primary := isolate(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		lease, err := record(h).lock(ctx, client, "n", longTTL, holdfast.Retry(holdfast.MaxAttempts(2, holdfast.Every(50*time.Millisecond))))
		switch {
		case err == nil:
			t.Errorf("granted with token %d, although no replica has it", lease.Token())
		case !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "replicas"):
			t.Errorf("the error does not say what is wrong: %v", err)
		}
		primary.Kill()
		b.group.AwaitFailover(primary)
		next := record(h).must(t, other, "n", longTTL, holdfast.Retry(holdfast.Every(50*time.Millisecond)))
		check(t, resource.add(next.Token()))
		next.mustUnlock(t)
		check(t, h.Check())
		check(t, resource.check())
		b.clean(soon, client, other)
	})
}

func TestWithReplicasAwaitedARecordOfOnceThatAFailoverCouldLoseIsAnError(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		client := openURL(t, b.url+"?replicas=1")
		err := client.Once(t.Context(), "n", longTTL, func(context.Context) error {
			isolate(t, b)
			return nil
		})
		if !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("the record is on no replica: %v, want ErrUnavailable", err)
		}
	})
}

func TestWithReplicasAwaitedAGrantSurvivesAFailover(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		h, resource := new(History), new(counter)
		url := b.url + "?replicas=1"
		client, other := openURL(t, url), openURL(t, url)
		lease := record(h).must(t, client, "n", longTTL)
		over := lease.watch()
		check(t, resource.add(lease.Token()))
		primary := b.primary()
		primary.Kill()
		b.group.AwaitFailover(primary)

		asked := now()
		err := retry(func() error {
			_, err := other.TryLock(t.Context(), "n")
			return err
		})
		if !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("want that the new primary knows the holder, got %v", err)
		}
		h.AddRefused(Attempt{Name: "n", Asked: asked, Ended: now()})
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
	})
}

// The old primary grants locks until it is demoted, a moment after the replica was promoted. But that
// replica does not confirm them.
func TestWithAllReplicasAwaitedAPlannedFailoverMakesNoSecondHolder(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		b.url += "?replicas=2"
		h, resource := new(History), new(counter)
		client, other := b.open(), b.open()
		lease := record(h).must(t, client, "held", longTTL)
		over := lease.watch()
		stop := b.busy(h, resource, 3)
		for range 2 {
			progress(t, resource, "all replicas follow")
			b.group.AwaitSentinels() // they know all replicas
			failOver(b)
			err := retry(func() error {
				_, err := other.TryLock(t.Context(), "held")
				return err
			})
			if !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("TryLock of a held name: %v, want ErrHeld", err)
			}
			check(t, retry(func() error { return lease.Renew(t.Context()) }))
		}
		progress(t, resource, "all replicas follow again")
		select {
		case <-over:
			t.Errorf("the lease was lost: %v", lease.Err())
		default:
		}
		lease.mustUnlock(t)
		b.close(client)
		b.close(other)
		stop()
	})
}

// A planned failover begins with the promotion of a replica. Until it is demoted, the old primary still
// has the other replica.
func TestAfterAPromotionTheOldPrimaryGrantsNothingThatAllReplicasMustConfirm(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		h := new(History)
		one, all := openURL(t, b.url+"?replicas=1"), openURL(t, b.url+"?replicas=2")
		lease := record(h).must(t, all, "held", longTTL)
		primary := b.primary()
		promoted := b.nodes[(slices.Index(b.nodes, primary)+1)%len(b.nodes)]
		promoted.Must("REPLICAOF", "NO", "ONE")
		next := openURL(t, viaRueidis+"://"+promoted.Addr()) // a client that has found the new primary

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
		if _, err := next.TryLock(t.Context(), "held"); !errors.Is(err, holdfast.ErrHeld) || !lease.believes() {
			t.Errorf("a grant that all replicas confirmed: %v, %v, want ErrHeld", err, lease.Err())
		}
	})
}

// A program that has lost its connections needs a Sentinel to find the primary.
func TestAHungSentinelDoesNotKeepClientsFromThePrimary(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		client := b.open()
		record(new(History)).must(t, client, "n", longTTL).mustUnlock(t)
		primary := b.primary()
		used := slices.IndexFunc(b.group.Sentinels, func(s *servers.Redis) bool { return len(connections(s)) > 0 })
		if used < 0 {
			t.Fatal("the client has no connection to a Sentinel")
		}
		b.group.Sentinels[used].Stop()
		defer b.group.Sentinels[used].Continue()
		for _, kind := range []string{"normal", "pubsub"} {
			primary.Must("CLIENT", "KILL", "TYPE", kind)
		}
		var lease *holdfast.Lease
		err := retry(func() (err error) {
			lease, err = client.Lock(t.Context(), "n")
			return err
		})
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		check(t, err)
	})
}
