package etcdstore

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func TestAPairCostsTwoWritesAndWaitingCostsNone(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	s, look := opened(t, server.Addr()), direct(t, server.Addr())
	// entries returns by how many entries a call makes the log of the server longer.
	entries := func(call func()) int {
		t.Helper()
		before, err := look.Status(t.Context(), server.Addr())
		call()
		after, err2 := look.Status(t.Context(), server.Addr())
		noError(t, errors.Join(err, err2))
		return int(after.RaftIndex - before.RaftIndex)
	}
	for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
		pair := func() {
			req := suites.Request("a")
			req.Mode = mode
			must(t, s, req, 0)
			suites.Release(t, s, req)
		}
		pair() // creates a lease
		if n := entries(pair); n != 2 {
			t.Errorf("a pair of %v mode took %d entries of the log, want 2", mode, n)
		}
	}
	holder, waiter := suites.Request("w"), suites.Queued("w")
	must(t, s, holder, 0)
	must(t, s, waiter, 1)
	if n := entries(func() {
		must(t, s, waiter, 1)
		if _, err := s.Renew(t.Context(), []store.Renewal{suites.Renewal(holder)}); err != nil {
			t.Error(err)
		}
	}); n != 0 {
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
	// Two handles take turns, and each waits for the other, unless they are readers.
	for name, mode := range map[string]store.Mode{"e": store.Exclusive, "p": store.Permits, "s": store.Shared} {
		ask := func(s *Store, req store.Request, place int) store.Request {
			t.Helper()
			if req.Mode = mode; mode == store.Permits {
				req.Limit = 1
			}
			must(t, s, req, place)
			return req
		}
		holder, waiter := one, two
		held := ask(holder, suites.Request(name), 0)
		for range turns {
			next := suites.Request(name)
			if mode != store.Shared {
				next = ask(waiter, suites.Queued(name), 1)
			}
			suites.Release(t, holder, held)
			noError(t, waiter.Wait(suites.Limited(t), name, next.ID))
			held = ask(waiter, next, 0)
			holder, waiter = waiter, holder
		}
		suites.Release(t, holder, held)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end, err := look.Put(ctx, "end", "")
	noError(t, err)
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
