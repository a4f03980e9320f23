package etcdstore

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A proxy numbers watches by itself and replies to keep-alives in any order.
func TestLeasesAreKeptBehindAGRPCProxy(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy := servers.StartEtcdProxy(t, server.Addr())
	const ttl, n = 10 * time.Second, 10
	c := client(t, ttl, proxy.Addr())
	var leases []*holdfast.Lease
	for i := range n {
		lease, err := c.Lock(within(t, patience), fmt.Sprint("held", i))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	// Watch several names at the same time, so that their replies arrive in any order.
	var wg sync.WaitGroup
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
		one, two := client(t, time.Minute, proxy.Addr()), client(t, time.Minute, proxy.Addr())
		for i := range n {
			wg.Go(func() {
				name := fmt.Sprint("passed", i)
				lease, err := one.Lock(within(t, patience), name)
				if err != nil {
					t.Error(err)
					return
				}
				next := lock(two, within(t, patience), name)
				if err := lease.Unlock(within(t, patience)); err != nil {
					t.Error(err)
				}
				got := <-next
				if got.err != nil {
					t.Error(got.err)
					return
				}
				if err := got.lease.Unlock(within(t, patience)); err != nil {
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

// If the reply to a keep-alive is late, a proxy uses it for the next call, whose own request has
// not reached the server yet.
func TestALateReplyOfAGRPCProxyDoesNotExtendALease(t *testing.T) {
	t.Parallel()
	wire := faultproxy.Start(t, servers.StartEtcd(t, servers.EtcdOptions{}).Addr())
	proxy := servers.StartEtcdProxy(t, wire.Addr())
	s := opened(t, proxy.Addr())
	l, err := s.lease(within(t, patience), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if alive, err := s.keepAlive(within(t, patience), l); !alive || err != nil {
		t.Fatal(alive, err)
	}
	// The server has received the first call by then: a proxy forwards within half a second.
	wire.ToClient.Hold()
	if alive, err := s.keepAlive(within(t, 2*time.Second), l); err == nil {
		t.Fatalf("answered without a reply: %v", alive)
	}
	wire.ToServer.Hold()
	done := make(chan error, 1)
	go func() {
		_, err := s.keepAlive(within(t, patience), l)
		done <- err
	}()
	time.Sleep(time.Second) // the second call is waiting in the proxy
	wire.ToClient.Heal()
	select {
	case err := <-done:
		t.Errorf("answered though nothing has reached the server: %v", err)
	case <-time.After(time.Second):
		wire.Heal()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
