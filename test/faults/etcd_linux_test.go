package faults

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	_ "github.com/holdfast-lock/holdfast/etcdstore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

var (
	sharedEtcd = sync.OnceValue(func() *servers.EtcdCluster { return servers.StartEtcdCluster(&process, 3, unhurried) })
	etcdBeds   atomic.Int64

	// The election timeout is the default of etcd, because an election that a busy machine causes would
	// restart the TTL of every lease.
	unhurried = servers.EtcdOptions{Args: []string{"--heartbeat-interval=100", "--election-timeout=1000"}}
)

// etcd returns a bed with a prefix of its own on three servers that all tests share.
func etcd(t testing.TB) *bed {
	t.Helper()
	b := etcdOn(t, sharedEtcd())
	b.prefix = fmt.Sprintf("bed%d/", etcdBeds.Add(1))
	b.url += "/" + b.prefix
	return b
}

func etcdOn(t testing.TB, c *servers.EtcdCluster) *bed {
	return &bed{t: t, url: "etcd://" + strings.Join(c.Addrs(), ","), etcd: c}
}

// leftOnEtcd returns an error that names the keys that are left, and the leases if the servers are not
// shared. Connections need no check, because they have goroutines, which are counted at the end.
func (b *bed) leftOnEtcd() error {
	var found struct {
		Kvs    []struct{ Key string }
		Leases []struct{ ID string }
	}
	all := base64.StdEncoding.EncodeToString([]byte{0})
	node := b.etcd.Leader()
	err := errors.Join(
		node.Ask("/v3/kv/range", map[string]any{"key": all, "range_end": all, "keys_only": true}, &found),
		node.Ask("/v3/lease/leases", map[string]any{}, &found))
	if err != nil {
		return err
	}
	var left []string
	for _, kv := range found.Kvs {
		if key, _ := base64.StdEncoding.DecodeString(kv.Key); strings.HasPrefix(string(key), b.prefix) {
			left = append(left, string(key))
		}
	}
	for _, lease := range found.Leases {
		if b.prefix == "" {
			left = append(left, "lease "+lease.ID)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("left: %q", left)
	}
	return nil
}

// restartAll kills all servers at once and starts them again, with their data.
func (b *bed) restartAll() {
	b.t.Helper()
	for _, node := range b.etcd.Nodes {
		node.Kill()
	}
	var all sync.WaitGroup
	for _, node := range b.etcd.Nodes {
		all.Go(node.Restart) // none of them answers before two are running
	}
	all.Wait()
}

// The tests share the servers. They run one after the other, and each leaves all servers running.
func TestEtcdWhoseServersFail(t *testing.T) {
	t.Parallel()
	b := etcdOn(t, servers.StartEtcdCluster(t, 3, unhurried))
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b *bed)
	}{
		{"all are killed and come back with locks and tokens", func(t *testing.T, b *bed) { survivesRestart(t, b, b.restartAll) }},
		{"all hang beyond the TTL", func(t *testing.T, b *bed) { endsOnHung(t, b, b.etcd.Nodes) }},
		{"a majority hangs beyond the TTL", func(t *testing.T, b *bed) { endsOnHung(t, b, b.etcd.Nodes[:2]) }},
		{"the leader is killed while clients work", func(t *testing.T, b *bed) {
			goesOnThrough(t, b, func(b *bed, _ wires) { b.etcd.Leader().Restart() })
		}},
		{"the leader hangs while clients work", func(t *testing.T, b *bed) {
			goesOnThrough(t, b, func(b *bed, _ wires) {
				leader := b.etcd.Leader()
				leader.Stop()
				b.etcd.Leader() // another
				leader.Continue()
			})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.t = t
			test.run(t, b)
		})
	}
}

// survivesRestart checks that a lease, its waiter and the tokens survive a restart of all servers.
func survivesRestart(t *testing.T, b *bed, restart func()) {
	h := new(History)
	client, other := b.open(), b.open()
	record(h).must(t, client, "n", longTTL).mustUnlock(t)
	lease := record(h).must(t, client, "n", longTTL)
	waiting := record(h).later(t, t.Context(), other, "n", longTTL, patient)
	b.queued(other, "n", 1)
	restart()
	if err := retry(func() error { return lease.Renew(t.Context()) }); err != nil {
		t.Errorf("the lease did not survive: %v", err)
	}
	lease.mustUnlock(t)
	waiting.get(soon).mustUnlock(t)
	record(h).must(t, client, "n", longTTL, patient).mustUnlock(t)
	check(t, h.Check())
	b.clean(longTTL+soon, client, other)
}

// endsWithout checks that a lease ends for its holder before the next request is granted, while servers
// are missing. Nothing else is granted meanwhile.
func endsWithout(t *testing.T, b *bed, stop, resume func()) {
	h := new(History)
	client, other := b.open(), b.open()
	lease := record(h).must(t, client, "n", b.short())
	over := lease.watch()
	waiting := record(h).later(t, t.Context(), other, "n", longTTL, patient)
	b.queued(other, "n", 1)
	eventually(t, "the lease is renewed", renewed(lease))
	stop()
	denied(t, other)
	ends(t, "the lease without its servers", over)
	if !errors.Is(lease.Err(), holdfast.ErrLost) {
		t.Errorf("the lease ended with %v", lease.Err())
	}
	select {
	case <-waiting.done:
		t.Errorf("the next is granted without the servers: %v", waiting.err)
	default:
	}
	resume()
	next := waiting.get(limit)
	check(t, retry(func() error { return next.Renew(t.Context()) }))
	next.mustUnlock(t)
	check(t, h.Check())
	b.clean(longTTL+soon, client, other)
}

// denied checks that a lock that nobody holds is not granted, while too few servers can be reached.
func denied(t *testing.T, c *holdfast.Client) {
	t.Helper()
	few, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if free, err := c.TryLock(few, "free", holdfast.TTL(2*shortTTL)); err == nil {
		t.Errorf("granted without the servers: token %d", free.Token())
	} else if errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("refused because of a holder: %v", err)
	}
}

// A hangable is a server that can be made to hang.
type hangable interface {
	Stop()
	Continue()
}

// endsOnHung is endsWithout servers that hang.
func endsOnHung[S hangable](t *testing.T, b *bed, hung []S) {
	endsWithout(t, b, func() {
		for _, node := range hung {
			node.Stop()
		}
	}, func() {
		for _, node := range hung {
			node.Continue()
		}
	})
}
