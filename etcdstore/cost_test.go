package etcdstore

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/etcdstore/internal/etcdtest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

var names = flag.Int("names", 3_000, "how many names to lock and release")

func TestAPairCostsTwoWritesAndWaitingCostsNone(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	look := direct(t, server.Addr())
	c, err := holdfast.Open(t.Context(), url(server.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// entries returns the number of entries in the log of the server.
	entries := func() int64 {
		t.Helper()
		status, err := look.Status(t.Context(), server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		return int64(status.RaftIndex)
	}
	pair := func(lock func() (*holdfast.Lease, error)) {
		t.Helper()
		lease, err := lock()
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, lock := range map[string]func() (*holdfast.Lease, error){
		"exclusive": func() (*holdfast.Lease, error) { return c.Lock(t.Context(), "a") },
		"shared":    func() (*holdfast.Lease, error) { return c.RLock(t.Context(), "b") },
		"permits":   func() (*holdfast.Lease, error) { return c.Semaphore("c", 3).Acquire(t.Context(), 1) },
	} {
		pair(lock) // creates a lease
		before := entries()
		for range 10 {
			pair(lock)
		}
		if n := entries() - before; n != 20 {
			t.Errorf("ten pairs of %s mode took %d entries of the log, want 20", what, n)
		}
	}

	s := opened(t, server.Addr())
	holder, waiter := request("w", false), request("w", true)
	must(t, s, holder, 0)
	must(t, s, waiter, 1)
	before := entries()
	for range 5 {
		must(t, s, waiter, 1)
	}
	renewal := store.Renewal{Name: "w", ID: holder.ID, TTL: holder.TTL, Mode: holder.Mode}
	if _, err := s.Renew(t.Context(), []store.Renewal{renewal}); err != nil {
		t.Fatal(err)
	}
	if n := entries() - before; n != 0 {
		t.Errorf("a waiter that asks and a renewal took %d entries of the log, want none", n)
	}
}

// etcd keeps a trace of every deleted key until it is compacted, which slows down reads of that
// name. So a name must use few keys, however often it is locked.
func TestKeysAreReused(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	look := direct(t, server.Addr())
	one, two := opened(t, server.Addr()), opened(t, server.Addr())
	const turns = 30
	// Two handles take turns, and each waits for the other.
	take := func(mode store.Mode, limit int, name string) {
		t.Helper()
		ask := func(s *Store, place int, req store.Request) store.Request {
			t.Helper()
			req.Mode, req.Limit = mode, limit
			must(t, s, req, place)
			return req
		}
		release := func(s *Store, req store.Request) {
			t.Helper()
			if err := s.Release(within(t, patience), name, req.ID, store.Keep{}); err != nil {
				t.Fatal(err)
			}
		}
		held := ask(one, 0, request(name, false))
		for i := range turns {
			holder, waiter := one, two
			if i%2 == 1 {
				holder, waiter = two, one
			}
			if mode == store.Shared {
				release(holder, held)
				held = ask(waiter, 0, request(name, false))
				continue
			}
			next := ask(waiter, 1, request(name, true))
			release(holder, held)
			if err := waiter.Wait(within(t, patience), name, next.ID); err != nil {
				t.Fatal(err)
			}
			held = ask(waiter, 0, next)
		}
		release(map[bool]*Store{true: one, false: two}[turns%2 == 0], held)
	}
	take(store.Exclusive, 0, "e")
	take(store.Permits, 1, "p")
	take(store.Shared, 0, "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end, err := look.Put(ctx, "end", "")
	if err != nil {
		t.Fatal(err)
	}
	keys := make(map[string]int)
	for resp := range look.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		for _, event := range resp.Events {
			keys[string(event.Kv.Key)]++
		}
		if resp.Err() != nil || len(resp.Events) > 0 && resp.Header.Revision >= end.Header.Revision {
			cancel()
		}
	}
	if keys["end"] != 1 {
		t.Fatalf("not all was read: %v", keys)
	}
	if n := keys[one.keys.key("e", kindExclusive, 0)]; n != 2*(turns+1) {
		t.Errorf("the key of the exclusive grant was written or deleted %d times, want %d", n, 2*(turns+1))
	}
	if len(keys) > 20 {
		t.Errorf("%d turns left the traces of %d keys: %v", 3*turns, len(keys), keys)
	}
}

func TestNothingIsLeftOfManyNames(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{Args: []string{"--auto-compaction-mode=revision", "--auto-compaction-retention=10000"}})
	look := direct(t, server.Addr())
	c, err := holdfast.Open(t.Context(), url(server.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const workers = 64
	var wg sync.WaitGroup
	begin := time.Now()
	for w := range workers {
		wg.Go(func() {
			for i := w; i < *names; i += workers {
				lease, err := c.Lock(t.Context(), fmt.Sprint("name:", i))
				if err == nil {
					err = lease.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d names in %v", *names, time.Since(begin))
	if left := etcdtest.Residue(t, look); len(left) > workers {
		t.Errorf("%d keys and leases before Close, want at most a lease for each of %d goroutines: %.5q…", len(left), workers, left)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if left := etcdtest.Residue(t, look); len(left) > 0 {
		t.Errorf("left after Close: %q", left)
	}
}
