package etcdstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// A proxy numbers watches by itself, replies to keep-alives in any order, and sends keep-alives
// of its own.
func TestConformanceBehindAGRPCProxy(t *testing.T) {
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy := servers.StartEtcdProxy(t, server.Addr())
	client := direct(t, server.Addr())
	residue(t, client)
	storetest.Run(t, storetest.Harness{
		Open:    func(t testing.TB) store.Store { return openQuick(t, url(proxy.Addr()), slowBeat) },
		Residue: func(t testing.TB) []string { return residue(t, client) },
		// A keep-alive takes half of a second, and the time that is left is told in whole seconds.
		TTL:      5 * time.Second,
		Parallel: 16,
		Slack:    2500 * time.Millisecond,
	})
}

func TestLeasesAreKeptBehindAGRPCProxy(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy := servers.StartEtcdProxy(t, server.Addr())
	const ttl, n = 4 * time.Second, 10
	c := client(t, ttl, proxy.Addr())
	var leases []*holdfast.Lease
	for i := range n {
		lease, err := c.Lock(bounded(t, patience), fmt.Sprint("held", i))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	// Watches of several names at the same time, so that their replies come in any order.
	var wg sync.WaitGroup
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); {
		one, two := client(t, time.Minute, proxy.Addr()), client(t, time.Minute, proxy.Addr())
		for i := range n {
			wg.Go(func() {
				name := fmt.Sprint("passed", i)
				lease, err := one.Lock(bounded(t, patience), name)
				if err != nil {
					t.Error(err)
					return
				}
				next := lock(two, bounded(t, patience), name)
				if err := lease.Unlock(bounded(t, patience)); err != nil {
					t.Error(err)
				}
				got := <-next
				if got.err != nil {
					t.Error(got.err)
					return
				}
				if err := got.lease.Unlock(bounded(t, patience)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		one.Close()
		two.Close()
	}
	for i, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Errorf("lease %d: %v", i, err)
		}
	}
}

// A proxy may reply with what it heard before it was asked. The time that a lease has is the
// server's word, not the proxy's.
func TestAKeepAliveThroughAStoppedGRPCProxyIsNotCountedFromItsReply(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy := servers.StartEtcdProxy(t, server.Addr())
	s := opened(t, proxy.Addr())
	const ttl = 6 * time.Second
	l, err := s.lease(bounded(t, patience), ttl)
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := s.keepAlive(bounded(t, patience), l); !alive || err != nil {
		t.Fatal(alive, err)
	}
	// The proxy hears nothing from the server, and the server nothing from it.
	for range 3 {
		server.Stop()
		done := make(chan error, 1)
		go func() {
			_, err := s.keepAlive(bounded(t, patience), l)
			done <- err
		}()
		time.Sleep(ttl / 4)
		server.Continue()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		ends := time.Duration(l.sent.Load()) + l.span() - sinceBase()
		asked := sinceBase()
		left, err := s.leftOf(bounded(t, patience), l.id)
		if err != nil {
			t.Fatal(err)
		}
		if real := left + time.Second + sinceBase() - asked; ends > real {
			t.Errorf("the lease has %v by our count, and %v at most by the server's", ends, real)
		}
	}
}
