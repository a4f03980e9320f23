package etcdstore

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/etcdstore/internal/etcdtest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// leased returns a lease that no grant uses.
func leased(t testing.TB, s *Store, ttl time.Duration) *lease {
	t.Helper()
	l, err := s.lease(suites.Limited(t), ttl)
	noError(t, err)
	return l
}

// keptAlive extends a lease.
func keptAlive(t testing.TB, s *Store, l *lease) {
	t.Helper()
	if alive, err := s.keepAlive(suites.Limited(t), l); !alive || err != nil {
		t.Fatalf("keep-alive: alive %v, error %v", alive, err)
	}
}

// The TTL of a lease starts when the servers receive the request. The client only knows that this
// happens after it sent the request.
func TestAGrantWithAReusedLeaseDoesNotReturnMoreTimeThanItHas(t *testing.T) {
	t.Parallel()
	proxy, s, _, _ := behind(t)
	other, req := suites.Request("other"), suites.Request("a")
	req.TTL = 10 * time.Second
	must(t, s, req, 0)
	proxy.ToClient.Delay(time.Second)
	must(t, s, other, 0)
	suites.Release(t, s, other)
	c := s.pool.idle[whole(other.TTL)][0]
	check := func(began, ttl time.Duration) {
		t.Helper()
		if over := began + ttl - c.ends(); over > 0 {
			t.Errorf("the holder believes in its grant for %v after the server may have ended it", over)
		}
	}
	began := sinceBase()
	again := suites.Request("other")
	check(began, must(t, s, again, 0).TTL)
	suites.Release(t, s, again)
	req.TTL = other.TTL
	began = sinceBase()
	check(began, suites.Extended(t, s, req).TTL)
}

// If two grants shared a lease, the end of one would end the other.
func TestConcurrentRenewalsAndReleasesDoNotShareALease(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	s, look := opened(t, server.Addr()), direct(t, server.Addr())
	for i := range 300 {
		req := suites.Request("a")
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
			if _, err := s.Renew(suites.Limited(t), []store.Renewal{renewal}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			time.Sleep(time.Duration(i%30) * 50 * time.Microsecond)
			suites.Release(t, s, req)
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
	nothingLeft(t, look)
}

// nothingLeft expects that no keys and leases are on the server.
func nothingLeft(t testing.TB, look *clientv3.Client) {
	t.Helper()
	if left := etcdtest.Residue(t, look); len(left) > 0 {
		t.Errorf("%d left on the server: %q", len(left), left)
	}
}

// A revokeCounter counts how often leases are revoked.
type revokeCounter struct {
	pb.LeaseClient
	n int
}

func (r *revokeCounter) LeaseRevoke(ctx context.Context, req *pb.LeaseRevokeRequest, opts ...grpc.CallOption) (*pb.LeaseRevokeResponse, error) {
	r.n++
	return r.LeaseClient.LeaseRevoke(ctx, req, opts...)
}

// Two attempts from the same place in the queue get no reply. They use the same lease.
func TestLeaveRevokesTheLeaseOfAnAttemptThatWasRepeatedInVain(t *testing.T) {
	t.Parallel()
	b := newLateBed(t)
	holder, r := suites.Request("a"), suites.Queued("a")
	must(t, b.other, holder, 0)
	must(t, b.s, r, 1)
	suites.Release(t, b.other, holder)
	b.delay(r)
	c, _ := b.s.claim(claimKey{"a", r.ID})
	b.delay(r)
	if again, _ := b.s.claim(claimKey{"a", r.ID}); again.grant != c.grant {
		t.Errorf("lease %+v, then %+v", c.grant, again.grant)
	}
	revokes := &revokeCounter{LeaseClient: b.s.leases}
	b.s.leases = revokes
	suites.Leave(t, b.s, r)
	b.s.leases = revokes.LeaseClient
	if revokes.n != 1 {
		t.Errorf("%d leases revoked, want one", revokes.n)
	}
	if left, err := b.other.leftOf(suites.Limited(t), c.grant.id); left > 0 || err != nil {
		t.Errorf("the lease lives for another %v, %v", left, err)
	}
}

// The stream of the keep-alives is open for long, so it may have ended before its next use.
func TestAKeepAliveDoesNotFailBecauseItsStreamHasEnded(t *testing.T) {
	t.Parallel()
	proxy, far, _, _ := behind(t)
	l := leased(t, far, time.Minute)
	for range 5 {
		keptAlive(t, far, l)
		proxy.Cut()
		proxy.Heal()
		eventually(t, func(ctx context.Context) (*snapshot, error) { return far.look(ctx, claimKey{"a", store.NewID()}) }) // to be connected
	}
}

// A caller with little time must not end the stream that the renewals of other grants use.
func TestACallThatGivesUpDoesNotFailTheKeepAlivesOfOthers(t *testing.T) {
	t.Parallel()
	const trip = 500 * time.Millisecond
	proxy, far, _, _ := behind(t)
	long := leased(t, far, time.Minute)
	short := leased(t, far, 2*time.Second) // the server is slow for this TTL
	keptAlive(t, far, long)                // opens the stream
	stream, sent := far.keeper.stream, make(chan struct{})
	proxy.ToServer.When(func([]byte) bool { return true }, func() { close(sent) })
	proxy.ToClient.Delay(trip)
	done := make(chan error, 1)
	go func() {
		_, err := far.keepAlive(suites.Limited(t), long)
		done <- err
	}()
	<-sent
	for range 7 {
		_, _ = far.keepAlive(within(t, trip/10), short)
	}
	if err := <-done; err != nil || stream.Context().Err() != nil {
		t.Errorf("the keep-alive of another call: %v; its stream: %v", err, stream.Context().Err())
	}
}

// The stream is used seldom. A server that was not asked since its last reply owes none, so a call that
// gives up before its request is sent must not end the stream and the connection of all other calls.
func TestACallThatGivesUpAtOnceDoesNotEndTheConnection(t *testing.T) {
	t.Parallel()
	s := opened(t, servers.StartEtcd(t, servers.EtcdOptions{}).Addr())
	l := leased(t, s, time.Minute)
	keptAlive(t, s, l) // opens the stream
	stream := s.keeper.stream
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	time.Sleep(keepSilence)
	_, _ = s.keeper.keep(dead, []*lease{l})
	if stream.Context().Err() != nil {
		t.Error("the stream has ended")
	}
}

// The TTL is longer than the test, so the leases do not expire. The replies arrive after the callers
// have given up.
func TestCallersWithLittleTimeLeaveNoLeases(t *testing.T) {
	t.Parallel()
	proxy, far, _, look := behind(t)
	c := suites.Client(t, far, holdfast.WithTTL(24*time.Hour))
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
	nothingLeft(t, look)
}

// A request got lost with its connection, and nothing undoes it before the store is closed.
func TestCloseLeavesNoLeaseOfALostRequest(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"Acquire", "Renew"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			proxy, far, _, look := behind(t)
			req, want := suites.Request("a"), 0
			call := func(ctx context.Context) error { _, err := far.Acquire(ctx, req); return err }
			if what == "Renew" {
				must(t, far, req, 0)
				renewal := suites.Renewal(req)
				renewal.TTL *= 2 // needs another lease
				call = func(ctx context.Context) error { _, err := far.Renew(ctx, []store.Renewal{renewal}); return err }
				want = 2 // the grant and its lease
			}
			proxy.Abandon(t, has([]byte(req.ID.String())), call, func() {})
			proxy.Cut()
			proxy.Heal()
			eventually(t, func(ctx context.Context) (*snapshot, error) { return far.look(ctx, claimKey{"b", store.NewID()}) })
			far.Close()
			if left := etcdtest.Residue(t, look); len(left) != want {
				t.Errorf("left on the server: %q", left)
			}
		})
	}
}

// A lease must be revoked, and the context of the call that does it has ended.
func TestCloseRevokesALeaseThatCouldNotBeRevokedEarlier(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	look := direct(t, server.Addr())
	for what, end := range map[string]func(dead context.Context, s *Store, l *lease){
		"of an attempt without a reply": func(dead context.Context, s *Store, l *lease) {
			l.unsure.Store(true)
			s.recycle(dead, l)
		},
		"of a renewal that a release has overtaken": func(dead context.Context, s *Store, l *lease) {
			g := &regrant{s: s, key: claimKey{"a", store.NewID()}, known: new(lease)}
			g.note(dead, l)
		},
	} {
		s := opened(t, server.Addr())
		l := leased(t, s, time.Minute)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		end(dead, s, l)
		if other := leased(t, s, time.Minute); other == l {
			t.Errorf("a lease %s is used again", what)
		} else {
			s.recycle(t.Context(), other)
		}
		s.Close()
		t.Log("a lease " + what)
		nothingLeft(t, look)
	}
}
