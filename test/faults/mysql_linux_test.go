package faults

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestMariaDBThatIsKilledAndComesBackKeepsLocksAndTokens(t *testing.T) {
	t.Parallel()
	b := mysqlOwn(t, servers.MariaDBOptions{})
	h := new(History)
	client, other := b.open(), b.open()
	record(h).must(t, client, "n", longTTL).mustUnlock(t)
	lease := record(h).must(t, client, "n", longTTL)
	waiting := record(h).later(t, t.Context(), other, "n", longTTL, holdfast.Retry(holdfast.Every(50*time.Millisecond)))
	b.queued(other, "n", 1)
	b.mysql.Restart()
	if err := retry(func() error { return lease.Renew(t.Context()) }); err != nil {
		t.Errorf("the lease did not survive: %v", err)
	}
	lease.mustUnlock(t)
	waiting.get(soon).mustUnlock(t)
	record(h).must(t, client, "n", longTTL).mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client, other)
}

func TestMariaDBThatLosesItsDataGrantsAgainAndTheTokenTellsThemApart(t *testing.T) {
	t.Parallel()
	b := mysqlOwn(t, servers.MariaDBOptions{})
	h, resource := new(History), new(counter)
	client := b.open()
	var other *holdfast.Client
	old, next := grantedTwice(t, h, resource, client, longTTL, func() *holdfast.Client {
		b.mysql.Wipe()
		b.mysql.exec(t, "CREATE DATABASE "+b.mysql.database)
		other = b.open() // creates the tables
		return other
	})
	check(t, h.CheckTokens())
	check(t, resource.check())
	next.mustUnlock(t)
	if err := old.Unlock(t.Context()); err != nil && !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the first holder's Unlock: %v", err)
	}
	b.clean(soon, client, other)
}

func TestAHungMariaDBGrantsNobodyBeforeTheHolderKnows(t *testing.T) {
	t.Parallel()
	b := mysqlOwn(t, servers.MariaDBOptions{})
	h := new(History)
	client, other := b.open(), b.open()
	lease := record(h).must(t, client, "n", b.short())
	over := lease.watch()
	waiting := record(h).later(t, t.Context(), other, "n", longTTL, holdfast.Retry(holdfast.Every(50*time.Millisecond)))
	b.queued(other, "n", 1)
	eventually(t, "the lease is renewed", renewed(lease))
	b.mysql.Stop()
	ends(t, "the lease of the hung server ends", over)
	if !errors.Is(lease.Err(), holdfast.ErrLost) {
		t.Errorf("the lease ended with %v", lease.Err())
	}
	b.mysql.Continue()
	next := waiting.get(limit)
	check(t, retry(func() error { return next.Renew(t.Context()) }))
	next.mustUnlock(t)
	check(t, h.Check())
	b.clean(longTTL+soon, client, other)
}

func TestTheClockOfMariaDBIsSetAndTokensStillGrow(t *testing.T) {
	t.Parallel()
	clock, opts := newClock(t)
	b := mysqlOwn(t, servers.MariaDBOptions{Env: opts.Env})
	h, resource := new(History), new(counter)
	client, other := b.open(), b.open()
	_, next := grantedTwice(t, h, resource, client, wrong/2, func() *holdfast.Client { // half a minute early
		clock.shift(wrong)
		return other
	})
	next.mustUnlock(t)

	// Set the clock back, to a minute before the real time.
	clock.shift(-wrong)
	late := b.open() // a client that has not seen the earlier time
	for _, c := range []*holdfast.Client{late, client, other} {
		again := record(h).must(t, c, "n", wrong/2)
		check(t, resource.add(again.Token()))
		again.mustUnlock(t)
	}
	check(t, h.CheckTokens())
	check(t, resource.check())
	b.clean(soon, client, other, late)
}

// An administrator, or a proxy, ends connections repeatedly while locks are in use.
func TestConnectionsToMariaDBKilledWhileInUse(t *testing.T) {
	t.Parallel()
	b := mysqlOwn(t, servers.MariaDBOptions{})
	h, resource := new(History), new(counter)
	stop := make(chan struct{})
	var clients []*holdfast.Client
	for range 4 {
		clients = append(clients, b.open())
	}
	var killer, workers sync.WaitGroup
	killer.Go(func() {
		for {
			ids, err := b.mysql.query(fmt.Sprintf("SELECT id FROM information_schema.processlist WHERE db = '%s'", b.mysql.database))
			if err != nil {
				t.Errorf("the list of connections: %v", err)
			}
			for _, id := range ids {
				b.mysql.query("KILL " + id) // the connection may have ended by itself
			}
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	for _, c := range clients {
		workers.Go(func() {
			for range 15 {
				if err := addOnce(t.Context(), h, c, resource); err != nil {
					t.Errorf("L: %v", err)
					return
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	killer.Wait()
	check(t, h.Check())
	check(t, resource.check())
	b.clean(longTTL+soon, clients...)
}
