package etcdstore

import (
	"bytes"
	"context"
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

func TestARenewalWithAReusedLeaseDoesNotReturnMoreTimeThanItHas(t *testing.T) {
	t.Parallel()
	s := opened(t, servers.StartEtcd(t, servers.EtcdOptions{}).Addr())
	other := request("other", false)
	must(t, s, other, 0)
	if err := s.Release(within(t, patience), "other", other.ID, store.Keep{}); err != nil {
		t.Fatal(err)
	}
	req := request("a", false)
	req.TTL = 10 * time.Second
	must(t, s, req, 0)
	began := sinceBase()
	out, err := s.Renew(within(t, patience), []store.Renewal{{Name: "a", ID: req.ID, TTL: other.TTL, Mode: req.Mode}})
	if err != nil || out[0].Status != store.Extended {
		t.Fatalf("Renew: %+v, %v", out, err)
	}
	c, _ := s.claim(claimKey{"a", req.ID})
	if over := began + out[0].TTL - c.grant.ends(); over > 0 {
		t.Errorf("the holder believes in its grant for %v after the server may have ended it", over)
	}
}

// If two grants shared a lease, the end of one would end the other.
func TestConcurrentRenewalsAndReleasesDoNotShareALease(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	s, look := opened(t, server.Addr()), direct(t, server.Addr())
	for i := range 300 {
		req := request("a", false)
		if i%2 == 1 {
			req.Mode = store.Shared // its key is named after the lease
		}
		must(t, s, req, 0)
		renewal := store.Renewal{Name: "a", ID: req.ID, TTL: 2 * req.TTL, Mode: req.Mode} // needs another lease
		if i%4 > 1 {
			renewal.TTL, renewal.Tokens = req.TTL, 10 // needs a write, with the same lease
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := s.Renew(within(t, patience), []store.Renewal{renewal})
			if err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			time.Sleep(time.Duration(i%30) * 50 * time.Microsecond)
			if err := s.Release(within(t, patience), "a", req.ID, store.Keep{}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		seen := map[int64]bool{}
		for _, list := range s.pool.idle {
			for _, l := range list {
				if seen[l.id] {
					t.Fatalf("round %d: lease %x is twice among the unused ones", i, l.id)
				}
				seen[l.id] = true
			}
		}
		if len(s.claims) > 0 {
			t.Fatalf("round %d: a claim is left", i)
		}
	}
	s.Close()
	if left := etcdtest.Residue(t, look); len(left) > 0 {
		t.Errorf("left on the server: %q", left)
	}
}

// The TTL is longer than the test, so the leases do not expire.
func TestCloseRevokesTheLeasesOfManyGrants(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	s, look := opened(t, server.Addr()), direct(t, server.Addr())
	const n = 300
	var reqs []store.Request
	for i := range n {
		req := request(fmt.Sprint("n", i), false)
		req.TTL = 24 * time.Hour
		reqs = append(reqs, req)
	}
	inParallel(n, func(i int) { must(t, s, reqs[i], 0) })
	inParallel(n, func(i int) {
		if err := s.Release(context.Background(), reqs[i].Name, reqs[i].ID, store.Keep{}); err != nil {
			t.Error(err)
		}
	})
	s.Close()
	if left := etcdtest.Residue(t, look); len(left) > 0 {
		t.Errorf("%d left on the server: %.5q", len(left), left)
	}
}

// An attempt without a reply may still be granted. The next attempt uses the same lease, fails
// because the name was taken, and cannot revoke the lease.
func TestLeaveRevokesTheLeaseOfAnAttemptThatWasRepeatedInVain(t *testing.T) {
	t.Parallel()
	proxy, far, near, look := behind(t)
	req := request("a", true)
	req.Owner = "the owner"
	l, err := far.newLease(within(t, patience), noLease, whole(req.TTL))
	if err != nil {
		t.Fatal(err)
	}
	l.unsure.Store(true)
	far.change(claimKey{"a", req.ID}, func(c *claim) { c.grant, c.mode = l, req.Mode })

	holdWrite := func() <-chan struct{} {
		held := make(chan struct{})
		proxy.ToServer.When(func(b []byte) bool { return bytes.Contains(b, []byte(req.Owner)) }, func() {
			proxy.ToServer.Hold()
			close(held)
		})
		return held
	}
	ctx, cancel := context.WithCancel(within(t, patience))
	defer cancel()
	held, done := holdWrite(), make(chan error, 1)
	go func() {
		_, err := far.Acquire(ctx, req)
		done <- err
	}()
	<-held
	must(t, near, request("a", false), 0)
	held = holdWrite()
	proxy.Heal()
	<-held // the request is joining the queue
	cancel()
	if err := <-done; err == nil {
		t.Fatal("answered though its request was held")
	}
	proxy.Heal()
	eventually(t, func(ctx context.Context) (int, error) { return 0, far.Leave(ctx, "a", req.ID) })
	resp, err := look.TimeToLive(within(t, patience), clientv3.LeaseID(l.id))
	if err != nil || resp.TTL > 0 {
		t.Errorf("the lease after Leave: %+v, %v", resp, err)
	}
}

// The stream of the keep-alives is open for long, so it may have ended before its next use.
func TestAKeepAliveDoesNotFailBecauseItsStreamHasEnded(t *testing.T) {
	t.Parallel()
	proxy, far, _, _ := behind(t)
	l, err := far.lease(within(t, patience), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if alive, err := far.keepAlive(within(t, patience), l); !alive || err != nil {
			t.Fatalf("keep-alive %d: alive %v, error %v", i, alive, err)
		}
		proxy.Cut()
		proxy.Heal()
		eventually(t, func(ctx context.Context) (*snapshot, error) { return far.look(ctx, claimKey{"a", store.NewID()}) }) // to be connected
	}
}

// A slow server must not cost short leases. A keep-alive needs one round trip, even if it opens the
// stream and asks whether there is a grpc-proxy.
func TestAKeepAliveNeedsOneRoundTrip(t *testing.T) {
	t.Parallel()
	const trip = 500 * time.Millisecond
	proxy, far, _, _ := behind(t)
	l, err := far.lease(within(t, patience), time.Minute) // connects
	if err != nil {
		t.Fatal(err)
	}
	proxy.ToClient.Delay(trip)
	if alive, err := far.keepAlive(within(t, trip*9/5), l); !alive || err != nil {
		t.Errorf("alive %v, error %v", alive, err)
	}
}

// A caller with little time must not end the stream that the renewals of other grants use.
func TestACallThatGivesUpDoesNotFailTheKeepAlivesOfOthers(t *testing.T) {
	t.Parallel()
	const trip = 500 * time.Millisecond
	proxy, far, _, _ := behind(t)
	var leases [2]*lease
	for i := range leases {
		var err error
		if leases[i], err = far.lease(within(t, patience), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if alive, err := far.keepAlive(within(t, patience), leases[0]); !alive || err != nil { // opens the stream
		t.Fatalf("alive %v, error %v", alive, err)
	}
	sent := make(chan struct{})
	proxy.ToServer.When(func([]byte) bool { return true }, func() { close(sent) })
	proxy.ToClient.Delay(trip)
	type outcome struct {
		alive bool
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		alive, err := far.keepAlive(within(t, patience), leases[0])
		done <- outcome{alive, err}
	}()
	<-sent
	if alive, err := far.keepAlive(within(t, trip/10), leases[1]); alive || err == nil {
		t.Fatalf("a reply before the end of a round trip: alive %v, error %v", alive, err)
	}
	if o := <-done; !o.alive || o.err != nil {
		t.Errorf("the keep-alive of another call: alive %v, error %v", o.alive, o.err)
	}
}

// The TTL is longer than the test, so the leases do not expire. The replies arrive after the callers
// have given up.
func TestCallersWithLittleTimeLeaveNoLeases(t *testing.T) {
	t.Parallel()
	proxy, far, _, look := behind(t)
	c, err := holdfast.New(far, holdfast.WithTTL(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	proxy.ToClient.Delay(50 * time.Millisecond)
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := c.TryLock(ctx, fmt.Sprint("n", i)); err == nil {
			t.Fatal("a reply before the end of a round trip")
		}
		cancel()
	}
	c.Close()
	far.Close()
	if left := etcdtest.Residue(t, look); len(left) > 0 {
		t.Errorf("%d left on the server: %q", len(left), left)
	}
}
