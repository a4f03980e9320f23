package redisstore

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails the test unless err matches the target.
func want(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// newClient returns a client of the program, which is closed at the end of the test.
func newClient(t testing.TB, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	must(t, err)
	t.Cleanup(client.Close)
	return client
}

func TestNewRefusesInvalidArguments(t *testing.T) {
	want(t, "a nil client", errOf(New(nil)), store.ErrInvalid)
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := newClient(t, rueidis.ClientOption{InitAddress: []string{server.Addr()}})
	for _, n := range []int{-1, 101} {
		want(t, strconv.Itoa(n)+" replicas", errOf(New(client, Replicas(n))), store.ErrInvalid)
	}
}

// rueidis does not honor the context of a call while it connects for another call.
func TestAHungServerDelaysNoCallBeyondItsContext(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := newClient(t, rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableRetry: true})
	s, err := New(client)
	must(t, err)
	suites.HungServer(t, s, openURL(t, "redis://"+server.Addr()), func() (goOn func()) {
		server.Stop()
		return server.Continue
	})
}

// The store itself bounds calls to a single server, so that the core does not have to.
func TestACallToAHungServerEndsWithinTheTimeoutOfTheStore(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	s := openURL(t, "redis://"+server.Addr())
	if timeout := s.Capabilities().Timeout; timeout == 0 || timeout > 3*time.Second {
		t.Fatalf("a timeout of %v, want at most 3s", timeout)
	}
	held := suites.Request("held")
	suites.Granted(t, s, held)
	server.Stop()
	defer server.Continue()
	suites.EndInTime(t, s, held)
}

// rueidis reconnects for a subscription, and gives up only after its timeout.
func TestCloseDoesNotWaitForASubscriptionThatConnects(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	s := openQuick(t, "redis://"+server.Addr())
	waiting := suites.Queued("n")
	suites.Granted(t, s, suites.Request("n"))
	suites.Refused(t, s, waiting)
	if err := s.Wait(t.Context(), "n", waiting.ID); err != nil { // until the subscription starts
		t.Fatal(err)
	}
	server.Stop()
	defer server.Continue()
	// Without a reply, the call ends when the connections are closed.
	if _, err := s.Acquire(context.Background(), suites.Request("m")); err == nil {
		t.Fatal("a stopped server granted a lock")
	}
	for range 4 {
		go s.Acquire(context.Background(), suites.Request("m"))
	}
	time.Sleep(100 * time.Millisecond) // these calls connect as well
	begin := time.Now()
	s.Close()
	if took := time.Since(begin); took > time.Second {
		t.Errorf("Close took %v", took)
	}
}

// Sentinels promote a replica before they demote the old primary, so for a moment both servers
// grant.
func TestTokensOfAPromotedReplicaAreAboveThoseThatTheOldPrimaryStillGrants(t *testing.T) {
	nodes := servers.StartRedisNodes(t, 2, servers.RedisOptions{})
	nodes[1].Must("REPLICAOF", "127.0.0.1", strconv.Itoa(nodes[0].Port))
	var stores []store.Store
	for _, node := range nodes {
		stores = append(stores, openURL(t, "redis://"+node.Addr()))
	}
	take := func(s store.Store) int64 {
		t.Helper()
		req := suites.Request("n")
		defer suites.Release(t, s, req)
		return suites.Granted(t, s, req).Token
	}
	first := strconv.FormatInt(take(stores[0]), 10)
	suites.Eventually(t, "the replica has another token", func() bool { return nodes[1].Must("GET", "holdfast:token") == first })
	nodes[1].Must("REPLICAOF", "NO", "ONE")
	for range 20 {
		old := take(stores[0])
		time.Sleep(10 * time.Millisecond) // longer than tokens can differ from the time of their grant
		if token := take(stores[1]); token <= old {
			t.Fatalf("one server grants token %d after the other one granted %d", token, old)
		}
		time.Sleep(10 * time.Millisecond)
		stores[0], stores[1] = stores[1], stores[0]
	}
}

// The reply to WAIT is lost without an error, as if the network to the server had gone. Leave waits for
// the end of the request that it undoes.
func TestALostConfirmationOfReplicasDelaysLeaveOnlyBriefly(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	servers.StartRedis(t, servers.RedisOptions{Config: []string{"replicaof 127.0.0.1 " + strconv.Itoa(server.Port)}})
	proxy := faultproxy.Start(t, server.Addr())
	s := openQuick(t, "redis://"+proxy.Addr()+"?replicas=1")
	defer s.Close()
	servers.Poll(t, 10*time.Second, func() error { // until the replica follows
		req := suites.Request("warm")
		_, err := s.Acquire(t.Context(), req)
		return errors.Join(err, s.Leave(t.Context(), req.Name, req.ID))
	})
	proxy.DropRepliesAfter(func(request []byte) bool { return bytes.Contains(request, []byte("WAIT")) })
	req := suites.Request("a")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.Acquire(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v, want DeadlineExceeded", err)
	}
	proxy.Heal()
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Leave(ctx, req.Name, req.ID); err != nil {
		t.Errorf("Leave: %v", err)
	}
	if left := redistest.Residue(t, server); len(left) > 0 {
		t.Errorf("keys left: %q", left)
	}
}
