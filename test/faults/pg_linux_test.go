package faults

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestPostgresARestartKeepsLocksAndTokens(t *testing.T) {
	t.Parallel()
	b := ownPostgres(t, servers.PostgresOptions{})
	h := new(History)
	client, other := b.open(), b.open()
	record(h).must(t, client, "m", longTTL).mustUnlock(t)
	lease := record(h).must(t, client, "n", longTTL)
	b.pg.Restart()
	eventually(t, "the server is used again", func() error {
		_, err := other.TryLock(t.Context(), "n")
		if errors.Is(err, holdfast.ErrHeld) {
			return nil
		}
		if err == nil {
			t.Fatal("the lock was granted twice")
		}
		return err
	})
	eventually(t, "the lease is renewed on a new connection", func() error { return lease.Renew(t.Context()) })
	lease.mustUnlock(t)
	record(h).must(t, other, "n", longTTL).mustUnlock(t)
	record(h).must(t, other, "m", longTTL).mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client, other)
}

func TestPostgresAHungServerGrantsNobodyBeforeTheHolderKnows(t *testing.T) {
	t.Parallel()
	b := ownPostgres(t, servers.PostgresOptions{})
	h := new(History)
	client, other := b.open(), b.open()
	lease := record(h).must(t, client, "n", shortTTL)
	over := lease.watch()
	waiting := record(h).later(t, t.Context(), other, "n", shortTTL)
	b.queued(other, "n", 1)
	b.pg.Stop()
	ends(t, "the holder's lease ends although the server hangs", over)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := client.TryLock(ctx, "m"); err == nil || time.Since(begin) > soon {
		t.Errorf("a call at a hung server: %v after %v", err, time.Since(begin))
	}
	b.pg.Continue()
	next := waiting.get(soon)
	next.watch()
	next.mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client, other)
}

// All backends are terminated repeatedly while clients lock, wait and renew.
func TestPostgresBackendsAreTerminatedWhileInUse(t *testing.T) {
	t.Parallel()
	b := ownPostgres(t, servers.PostgresOptions{})
	h, resource := new(History), new(counter)
	var clients []*holdfast.Client
	for range 3 {
		clients = append(clients, b.open())
	}
	end := time.Now().Add(4 * time.Second)
	done := make(chan int, len(clients))
	for _, c := range clients {
		go func() {
			n := 0
			for time.Now().Before(end) {
				lease := record(h).must(t, c, "n", longTTL, holdfast.Retry(holdfast.Every(20*time.Millisecond)))
				value, err := resource.read(lease.Token())
				if err == nil {
					err = resource.write(lease.Token(), value)
				}
				if err != nil {
					t.Error(err)
				}
				lease.mustUnlock(t)
				n++
			}
			done <- n
		}()
	}
	for time.Now().Before(end) {
		b.pg.Terminate("application_name = '" + b.pg.schema + "'")
		time.Sleep(200 * time.Millisecond)
	}
	sum := 0
	for range clients {
		sum += <-done
	}
	if sum == 0 {
		t.Error("nothing was locked")
	}
	check(t, h.Check())
	check(t, resource.check())
	b.clean(soon, clients...)
}

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
	old := record(h).must(t, client, "n", longTTL)
	read, err := resource.read(old.Token())
	check(t, err)
	b.pg.Kill()
	replica.Promote()
	other := openURL(t, b.pg.url(replica.Addr()))
	next := record(h).must(t, other, "n", longTTL)
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

func TestPostgresAClockThatJumpsEitherWayGivesTokensThatGrow(t *testing.T) {
	t.Parallel()
	clock, env := newClock(t)
	check(t, os.Chmod(clock.file, 0o644)) // for the user of the server
	check(t, os.Chmod(filepath.Dir(filepath.Dir(clock.file)), 0o711))
	b := ownPostgres(t, servers.PostgresOptions{Env: env.Env})
	h, resource := new(History), new(counter)
	client, other := b.open(), b.open()
	before := b.pg.Value("SELECT clock_timestamp()")
	for i, by := range []time.Duration{0, wrong, -wrong, 0, -2 * wrong} {
		clock.shift(by)
		c := []*holdfast.Client{client, other}[i%2]
		lease := record(h).must(t, c, "n", longTTL)
		value, err := resource.read(lease.Token())
		if err != nil {
			t.Fatalf("with a clock that is %v off: %v", by, err)
		}
		check(t, resource.write(lease.Token(), value))
		lease.mustUnlock(t)
	}
	if after := b.pg.Value("SELECT clock_timestamp()"); after >= before {
		t.Fatalf("the clock was not set back: %s, then %s", before, after)
	}
	check(t, h.CheckTokens())

	// This shows the weakness: a clock that jumps ahead ends grants early. The resource refuses
	// the old holder.
	clock.shift(0)
	h, resource = new(History), new(counter)
	old := record(h).must(t, client, "early", longTTL)
	_, err := resource.read(old.Token())
	check(t, err)
	clock.shift(longTTL + wrong)
	next := record(h).must(t, other, "early", longTTL)
	_, err = resource.read(next.Token())
	check(t, err)
	wantStale(t, resource.write(old.Token(), 0))
	next.mustUnlock(t)
}

// A waiter is woken when the lock is released. In pglock, a client that did not get the lock
// slept for a whole lease.
func TestPostgresPglockLoserSleptAWholeLeaseAlthoughTheLockWasFreed(t *testing.T) {
	t.Parallel()
	b := postgres(t)
	client, other := b.open(), b.open()
	lease, err := client.Lock(t.Context(), "n", holdfast.TTL(longTTL))
	check(t, err)
	got := make(chan error, 1)
	go func() {
		lease, err := other.Lock(t.Context(), "n", holdfast.TTL(longTTL))
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		got <- err
	}()
	b.queued(other, "n", 1)
	check(t, lease.Unlock(t.Context()))
	select {
	case err := <-got:
		check(t, err)
	case <-time.After(soon):
		t.Errorf("not granted %v after the lock was freed", soon)
	}
	b.clean(soon, client, other)
}
