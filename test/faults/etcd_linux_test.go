package faults

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	_ "github.com/holdfast-lock/holdfast/etcdstore"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// etcdBeds bounds how many clusters run at once. The election timeout is the default of etcd,
// because an election that a busy machine causes would restart the TTL of every lease.
var (
	etcdBeds  = make(chan struct{}, 3)
	unhurried = servers.EtcdOptions{Args: []string{"--heartbeat-interval=100", "--election-timeout=1000"}}
)

// etcd returns a bed of three servers.
func etcd(t testing.TB) *bed {
	t.Helper()
	etcdBeds <- struct{}{}
	t.Cleanup(func() { <-etcdBeds })
	cluster := servers.StartEtcdCluster(t, 3, unhurried)
	return &bed{t: t, url: "etcd://" + strings.Join(cluster.Addrs(), ","), etcd: cluster}
}

func (b *bed) openEtcdBy(opts ...holdfast.Option) (*holdfast.Client, wires) {
	b.t.Helper()
	var w wires
	var addrs []string
	for _, addr := range b.etcd.Addrs() {
		p := faultproxy.Start(b.t, addr)
		w, addrs = append(w, p), append(addrs, p.Addr())
	}
	return openURL(b.t, "etcd://"+strings.Join(addrs, ","), opts...), w
}

// leftOnEtcd returns an error that names the keys and leases that are left. Connections need no
// check, because they have goroutines, which are counted at the end.
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
		key, _ := base64.StdEncoding.DecodeString(kv.Key)
		left = append(left, string(key))
	}
	for _, lease := range found.Leases {
		left = append(left, "lease "+lease.ID)
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

func TestServersThatAreAllKilledAndComeBackKeepLocksAndTokens(t *testing.T) {
	t.Parallel()
	b := etcd(t)
	survivesRestart(t, b, b.restartAll)
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

func TestHungServersGrantNobodyBeforeTheHolderKnows(t *testing.T) {
	t.Parallel()
	for _, hung := range []int{3, 2} { // all, and a majority
		t.Run(fmt.Sprint(hung, " of 3"), func(t *testing.T) {
			t.Parallel()
			b := etcd(t)
			endsOnHungServers(t, b, b.etcd.Nodes[:hung])
		})
	}
}

// endsOnHungServers checks that a lease ends for its holder before the next request is granted,
// while servers hang.
func endsOnHungServers[S interface {
	Stop()
	Continue()
}](t *testing.T, b *bed, hung []S) {
	h := new(History)
	client, other := b.open(), b.open()
	lease := record(h).must(t, client, "n", b.short())
	over := lease.watch()
	waiting := record(h).later(t, t.Context(), other, "n", longTTL, patient)
	b.queued(other, "n", 1)
	eventually(t, "the lease is renewed", renewed(lease))
	for _, node := range hung {
		node.Stop()
	}
	ends(t, "the lease of the hung servers ends", over)
	if !errors.Is(lease.Err(), holdfast.ErrLost) {
		t.Errorf("the lease ended with %v", lease.Err())
	}
	for _, node := range hung {
		node.Continue()
	}
	next := waiting.get(limit)
	check(t, retry(func() error { return next.Renew(t.Context()) }))
	next.mustUnlock(t)
	check(t, h.Check())
	b.clean(longTTL+soon, client, other)
}

// Work continues while servers and connections fail. At the end, the resource has every update,
// in the order of tokens.
func TestWorkUnderALockGoesOnThroughFaults(t *testing.T) {
	t.Parallel()
	beds := map[string]func(t testing.TB) *bed{"etcd": etcd, "ZooKeeper": zookeeper}
	for _, fault := range []struct {
		name   string
		stores []string
		do     func(b *bed, w wires)
	}{
		{"the leader is killed", []string{"etcd"}, func(b *bed, _ wires) { b.etcd.Leader().Restart() }},
		{"the leader hangs", []string{"etcd"}, func(b *bed, _ wires) {
			leader := b.etcd.Leader()
			leader.Stop()
			b.etcd.Leader() // another
			leader.Continue()
		}},
		{"connections are killed", []string{"etcd", "ZooKeeper"}, func(_ *bed, w wires) {
			for range 10 {
				w[rand.IntN(len(w))].Cut()
				w.heal()
				time.Sleep(rand.N(200 * time.Millisecond))
			}
		}},
		{"a client is cut off", []string{"etcd", "ZooKeeper"}, func(b *bed, w wires) {
			w.hold()
			time.Sleep(b.short() + rand.N(b.short()/2))
			w.heal()
		}},
	} {
		for _, on := range fault.stores {
			t.Run(fault.name+"/"+on, func(t *testing.T) {
				t.Parallel()
				worksThrough(t, beds[on](t), fault.do)
			})
		}
	}
}

// worksThrough lets several clients work under one lock while a fault happens.
func worksThrough(t *testing.T, b *bed, fault func(b *bed, w wires)) {
	const workers, rounds = 4, 3
	h, resource := new(History), new(counter)
	stop := make(chan struct{})
	var clients []*holdfast.Client
	var all wires // the proxies of all clients, since a fault may affect any of them
	var working sync.WaitGroup
	for range workers {
		client, w := b.openBy()
		clients, all = append(clients, client), append(all, w...)
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := addOnceFor(t.Context(), h, client, resource, b.short()); err != nil {
					t.Errorf("L: %v", err)
					return
				}
			}
		})
	}
	for range rounds {
		before := resource.updates()
		eventually(t, "L: work goes on", func() error {
			if resource.updates() < before+workers {
				return errNotYet
			}
			return nil
		})
		i := rand.IntN(workers)
		fault(b, all[3*i:3*i+3])
	}
	close(stop)
	working.Wait()
	t.Logf("%d locks", h.Len())
	check(t, h.Check())
	check(t, resource.check())
	b.clean(limit, clients...)
}
