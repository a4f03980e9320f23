package etcdstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/etcdstore/internal/etcdtest"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

const patience = suites.Patience

func url(addrs ...string) string { return "etcd://" + strings.Join(addrs, ",") }

func opened(t testing.TB, addrs ...string) *Store { return openQuick(t, url(addrs...), slowBeat) }

func within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// must makes one request and requires the given place in the queue, or a grant if place is 0.
func must(t testing.TB, s *Store, req store.Request, place int) store.Answer {
	t.Helper()
	answer, err := s.Acquire(suites.Limited(t), req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	if answer.Granted() != (place == 0) || place > 0 && answer.Refusal.Place != place {
		t.Fatalf("Acquire: %+v, %+v, want place %d, 0 is granted", answer, answer.Refusal, place)
	}
	return answer
}

// eventually repeats a call until it succeeds.
func eventually[T any](t testing.TB, call func(ctx context.Context) (T, error)) (result T) {
	t.Helper()
	servers.Poll(t, patience, func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		result, err = call(ctx)
		return err
	})
	return result
}

// lock calls Lock on a new goroutine.
func lock(c *holdfast.Client, name string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.Lock(context.Background(), name)
		done <- err
	}()
	return done
}

// waiting returns when n requests are queued for a name.
func waiting(t testing.TB, s *Store, name string, n int) {
	t.Helper()
	servers.Poll(t, patience, func() error {
		page, err := s.List(suites.Limited(t), store.Query{Name: name})
		if err == nil && (len(page.Locks) == 0 || len(page.Locks[0].Waiters) != n) {
			err = errors.New("not all are queued")
		}
		return err
	})
}

// A leader that the others cannot reach does not notice that at once.
func TestALeaderThatTheOthersCannotReachGrantsNothing(t *testing.T) {
	t.Parallel()
	proxies := map[string]*faultproxy.Proxy{} // by peer
	cluster := servers.StartEtcdCluster(t, 3, servers.EtcdOptions{Via: func(addr string) string {
		if proxies[addr] == nil {
			proxies[addr] = faultproxy.Start(t, addr)
		}
		return proxies[addr].Addr()
	}})
	leader := cluster.Leader()
	inside, outside := opened(t, leader.Addr()), opened(t, cluster.Followers()[0].Addr(), cluster.Followers()[1].Addr())
	must(t, inside, suites.Request("before"), 0)
	proxies[leader.PeerAddr()].Hold()

	// The other servers elect a leader and grant. The server that is cut off grants nothing.
	taken := suites.Request("a")
	eventually(t, func(ctx context.Context) (store.Answer, error) { return outside.Acquire(ctx, taken) })
	ctx := within(t, 3*time.Second)
	if answer, err := inside.Acquire(ctx, suites.Request("a")); err == nil && answer.Granted() {
		t.Errorf("granted on both sides: %+v", answer)
	}
	if _, err := inside.Acquire(ctx, suites.Request("b")); err == nil {
		t.Error("a server that is cut off answers")
	}
	proxies[leader.PeerAddr()].Heal()
	refused := eventually(t, func(ctx context.Context) (store.Answer, error) { return inside.Acquire(ctx, suites.Request("a")) })
	if refused.Granted() {
		t.Error("granted a second time after the partition")
	}
}

func TestOneHungServerOfThreeIsNotUsed(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcdCluster(t, 3, servers.EtcdOptions{})
	s := opened(t, cluster.Addrs()...)
	pair := func() {
		t.Helper()
		req := suites.Request("a")
		servers.Poll(t, patience, func() error { _, err := s.Acquire(suites.Limited(t), req); return err })
		servers.Poll(t, patience, func() error { return s.Leave(suites.Limited(t), req.Name, req.ID) })
	}
	hanging := cluster.Followers()[0]
	connected := func() *conn {
		for key := range s.config.conns.all.Range {
			if one := key.(*conn); one.RemoteAddr().String() == hanging.Addr() {
				return one
			}
		}
		return nil
	}
	for connected() == nil {
		pair()
	}
	before := connected()
	hanging.Stop()
	begin := time.Now()
	for connected() == before {
		pair()
	}
	if took := time.Since(begin); took > pingAfter {
		t.Errorf("the connection was given up after %v, which gRPC does by itself", took)
	}
	pair()
}

// By default, gRPC dials a lost server less and less often, and finally only every two minutes.
func TestAServerThatWasDownForLongIsUsedSoonAfterItsReturn(t *testing.T) {
	t.Parallel()
	proxy, far, _, _ := behind(t)
	must(t, far, suites.Request("a"), 0)
	proxy.Cut()
	time.Sleep(18 * time.Second) // the default backoff of gRPC would make the next attempt after 22 s
	proxy.Heal()
	begin := time.Now()
	eventually(t, func(ctx context.Context) (store.Answer, error) { return far.Acquire(ctx, suites.Request("b")) })
	if took := time.Since(begin); took > 3*mostRedial {
		t.Errorf("the server was used %v after its return", took)
	}
}

// behind returns a store that connects through a proxy, and one that connects directly.
func behind(t *testing.T) (proxy *faultproxy.Proxy, far, near *Store, look *clientv3.Client) {
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	proxy = faultproxy.Start(t, server.Addr())
	return proxy, opened(t, proxy.Addr()), opened(t, server.Addr()), direct(t, server.Addr())
}

// has returns a function that matches requests with a mark.
func has(mark []byte) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, mark) }
}

// lose makes a call in which a request with a mark is executed, and its reply is lost together with
// the connection.
func lose(t *testing.T, proxy *faultproxy.Proxy, look *clientv3.Client, mark []byte, call func(ctx context.Context) error) {
	t.Helper()
	ctx := suites.Limited(t)
	proxy.Lose(t, has(mark), call, func() (string, error) {
		key, err := look.Get(ctx, "lock/a")
		if err != nil {
			return "", err
		}
		leases, err := look.Leases(ctx)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(key.Header.Revision, leases.Leases), nil
	})
}

// deletion returns a mark of requests that delete a key.
func deletion(t *testing.T, key string) []byte {
	t.Helper()
	mark, err := remove(key).Marshal()
	noError(t, err)
	return mark
}

// A request without a reply may still be executed while its lease is alive. If Leave succeeded
// then, nobody would remove what the request leaves behind.
func TestLeaveFailsUntilTheLeaseOfALostRequestIsRevoked(t *testing.T) {
	t.Parallel()
	proxy, far, near, look := behind(t)
	must(t, near, suites.Request("held"), 0)
	granted, queued, kept := suites.Request("free"), suites.Queued("held"), suites.Request("kept")
	must(t, far, queued, 1)
	must(t, far, kept, 0)
	connected := func() {
		eventually(t, func(ctx context.Context) (*snapshot, error) { return far.look(ctx, claimKey{"b", store.NewID()}) })
	}
	place := far.claims[claimKey{"held", queued.ID}].place.id
	lose(t, proxy, look, deletion(t, far.keys.key("held", kindWaiting, place)), func(ctx context.Context) error { return far.Leave(ctx, "held", queued.ID) })
	connected()
	lose(t, proxy, look, []byte(granted.ID.String()), func(ctx context.Context) error { _, err := far.Acquire(ctx, granted); return err })
	connected()
	proxy.Abandon(t, has([]byte("lock/kept"+separator+string(rune(kindDone)))), func(ctx context.Context) error {
		return far.Release(ctx, "kept", kept.ID, store.Keep{State: store.Done, For: time.Hour})
	}, func() {})
	proxy.Cut()
	proxy.Heal()
	for _, lost := range []struct {
		req   store.Request
		lease int64
	}{
		{kept, far.unsettled[claimKey{"kept", kept.ID}].lease}, // the first, because every Leave revokes it
		{granted, far.claims[claimKey{"free", granted.ID}].grant.id},
		{queued, place},
	} {
		revoke := binary.AppendUvarint([]byte{1 << 3}, uint64(lost.lease)) // field 1 of the request is the lease
		cut := proxy.CutOn(has(revoke))
		healed := make(chan struct{})
		go func() {
			<-cut
			proxy.Heal()
			close(healed)
		}()
		eventually(t, func(ctx context.Context) (int, error) { return 0, far.Leave(ctx, lost.req.Name, lost.req.ID) })
		if left := etcdtest.Residue(t, look); slices.Contains(left, fmt.Sprintf("lease %x", lost.lease)) {
			t.Errorf("%s: Leave succeeds, and the lease is still there: %q", lost.req.Name, left)
		}
		<-healed
	}
}

func TestALostReplyToARenewalWithTokensIsNotALostLock(t *testing.T) {
	t.Parallel()
	proxy, far, near, look := behind(t)
	req := suites.Request("a")
	must(t, far, req, 0)
	renewal := suites.Renewal(req)
	renewal.Tokens = 10
	renew := func(ctx context.Context) ([]store.Renewed, error) { return far.Renew(ctx, []store.Renewal{renewal}) }
	write := []byte(req.ID.String()) // it is in the value of the key
	lose(t, proxy, look, write, func(ctx context.Context) error { _, err := renew(ctx); return err })
	out := eventually(t, renew)
	if out[0].Status != store.Extended || out[0].Tokens != 10 {
		t.Errorf("%+v after a lost reply", out[0])
	}
	must(t, near, suites.Queued("a"), 1)
}

func TestNothingStaysOfAWaiterWhoseGrantGotNoReply(t *testing.T) {
	t.Parallel()
	proxy, far, near, look := behind(t)
	first, req := suites.Request("a"), suites.Queued("a")
	must(t, near, first, 0)
	must(t, far, req, 1)
	suites.Release(t, near, first)
	lose(t, proxy, look, []byte(req.ID.String()), func(ctx context.Context) error { _, err := far.Acquire(ctx, req); return err })
	if a := eventually(t, func(ctx context.Context) (store.Answer, error) { return far.Acquire(ctx, req) }); !a.Granted() {
		t.Fatalf("%+v after a lost reply", a)
	}
	suites.Release(t, far, req)
	far.mu.Lock()
	defer far.mu.Unlock()
	far.waits.mu.Lock()
	defer far.waits.mu.Unlock()
	if claims, waits := len(far.claims), len(far.waits.all); claims+waits > 0 {
		t.Errorf("%d claims and %d waits are left", claims, waits)
	}
}

// In etcd (issue 22082), a repeated Unlock deleted a newer lock of the same session.
func TestAReleaseThatArrivesLateDoesNotEndAnotherGrant(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(s *Store, id store.ID) error{
		"Release": func(s *Store, id store.ID) error {
			if err := s.Release(suites.Limited(t), "a", id, store.Keep{}); !errors.Is(err, store.ErrNotHeld) {
				return fmt.Errorf("%v, want ErrNotHeld", err)
			}
			return nil
		},
		"Leave": func(s *Store, id store.ID) error { return s.Leave(suites.Limited(t), "a", id) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			proxy, far, near, _ := behind(t)
			old, newer := suites.Request("a"), suites.Request("a")
			must(t, far, old, 0)
			seen, ended := make(chan struct{}), make(chan error, 1)
			proxy.ToServer.When(has([]byte("lock/a")), func() { proxy.ToServer.Hold(); close(seen) })
			go func() { ended <- end(far, old.ID) }()
			<-seen
			noError(t, near.Break(suites.Limited(t), "a", old.ID))
			must(t, near, newer, 0)
			proxy.Heal()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			suites.Extended(t, near, newer)
		})
	}
}

// A call without a reply may still be executed, so its lease is not given to another request.
func TestALeaseIsNotReusedWhileACallMayStillAffectIt(t *testing.T) {
	t.Parallel()
	proxy, far, near, look := behind(t)
	must(t, near, suites.Request("a"), 0)
	for what, leave := range map[string]func(ctx context.Context, req store.Request) error{
		"Leave": func(ctx context.Context, req store.Request) error { return far.Leave(ctx, "a", req.ID) },
		"leave the queue only": func(ctx context.Context, req store.Request) error {
			a := attempt{s: far, req: &req, key: claimKey{"a", req.ID}}
			return a.leaveQueue(ctx)
		},
	} {
		req := suites.Queued("a")
		must(t, far, req, 1)
		lease := far.claims[claimKey{"a", req.ID}].place.id
		lose(t, proxy, look, deletion(t, far.keys.key("a", kindWaiting, lease)), func(ctx context.Context) error { return leave(ctx, req) })
		eventually(t, func(ctx context.Context) (int, error) { return 0, far.Leave(ctx, "a", req.ID) })
		if left := etcdtest.Residue(t, look); slices.Contains(left, fmt.Sprintf("lease %x", lease)) {
			t.Errorf("%s: the lease is still there: %q", what, left)
		}
	}
}

// In etcd, a waiter was granted the lock although its lease had expired.
func TestEtcd11456WaiterWhoseLeaseHadExpiredWasGranted(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	s, look := opened(t, server.Addr()), direct(t, server.Addr())
	holder, dead, live := suites.Request("a"), suites.Queued("a"), suites.Queued("a")
	must(t, s, holder, 0)
	must(t, s, dead, 1)
	must(t, s, live, 2)
	revoke := func() {
		c, _ := s.claim(claimKey{"a", dead.ID})
		_, err := look.Revoke(suites.Limited(t), clientv3.LeaseID(c.place.id))
		noError(t, err)
	}
	revoke()
	must(t, s, live, 1)
	suites.Release(t, s, holder)
	must(t, s, dead, 2) // it is at the end of the queue, although the name is free
	must(t, s, live, 0)

	// The same applies if its lease ends between the read and the grant, before the next waiter
	// asks.
	behind := suites.Queued("a")
	must(t, s, behind, 2)
	suites.Release(t, s, live)
	a := &attempt{s: s, req: &dead, key: claimKey{"a", dead.ID}, began: sinceBase()}
	var err error
	if a.snap, err = s.look(suites.Limited(t), a.key); err != nil {
		t.Fatal(err)
	}
	revoke()
	if _, done, err := a.decide(suites.Limited(t)); done || err != nil {
		t.Errorf("granted with a lease that was over: %v", err)
	}
	must(t, s, behind, 0)
}

// In etcd, a waiter was not told that its session had ended.
func TestEtcd19597WaiterWasNotToldThatItsSessionDied(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	one, two := opened(t, server.Addr()), opened(t, server.Addr())
	must(t, one, suites.Request("a"), 0)
	waiter := lock(suites.Client(t, two), "a")
	waiting(t, one, "a", 1)
	server.Kill() // suites.Hung has a server that hangs
	select {
	case err := <-waiter:
		if !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("the waiter: %v, want ErrUnavailable", err)
		}
	case <-time.After(2 * patience):
		t.Error("the waiter is not told")
	}
}

func TestAWaitSurvivesCompaction(t *testing.T) {
	t.Parallel()
	proxy, far, near, look := behind(t)
	holder, waiter := suites.Request("a"), suites.Queued("a")
	must(t, near, holder, 0)
	must(t, far, waiter, 1)
	compact := func() {
		t.Helper()
		resp, err := look.Put(suites.Limited(t), "other", "")
		if err == nil {
			_, err = look.Compact(suites.Limited(t), resp.Header.Revision)
		}
		noError(t, err)
	}
	woken := func() {
		t.Helper()
		if err := far.Wait(suites.Limited(t), "a", waiter.ID); err != nil {
			t.Fatalf("Wait: %v", err)
		}
	}
	// A waiter whose connection ends is woken.
	proxy.Cut()
	compact()
	proxy.Heal()
	woken()
	eventually(t, func(ctx context.Context) (store.Answer, error) { return far.Acquire(ctx, waiter) })
	compact() // a watch that has begun is not affected
	suites.Release(t, near, holder)
	woken()
	must(t, far, waiter, 0)
}

// A request that seemed to be lost arrives after its identity has left.
func TestARequestThatArrivesAfterLeaveHasNoEffect(t *testing.T) {
	t.Parallel()
	proxy, far, near, look := behind(t)
	req := suites.Request("a")
	spare := leased(t, far, req.TTL)
	far.pool.push(spare) // so that the request needs no other
	proxy.Abandon(t, has([]byte("lock/a")), func(ctx context.Context) error {
		_, err := far.Acquire(ctx, req)
		return err
	}, func() {})
	if c, _ := far.claim(claimKey{"a", req.ID}); c.grant != spare || !spare.unsure.Load() {
		t.Fatal("the lease of a request without a reply is not marked as unsure")
	}
	// Undo the request as the handle would, but over the direct connection.
	noError(t, near.Leave(suites.Limited(t), "a", req.ID))
	near.revoke(suites.Limited(t), spare.id)
	proxy.Heal()
	eventually(t, func(ctx context.Context) (int, error) { return 0, far.Leave(ctx, "b", store.NewID()) })
	nothingLeft(t, look)
	must(t, near, suites.Request("a"), 0)
}
