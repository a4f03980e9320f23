package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/redistest"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

func TestNewRefusesInvalidArguments(t *testing.T) {
	if _, err := New(nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a nil client: %v, want ErrInvalid", err)
	}
	server := servers.StartRedis(t, servers.RedisOptions{})
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, n := range []int{-1, 101} {
		if _, err := New(client, Replicas(n)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%d replicas: %v, want ErrInvalid", n, err)
		}
	}
}

// rueidis does not honor the context of a call while it connects for another call.
func TestACallReturnsAtItsDeadlineWhileAnotherOneConnects(t *testing.T) {
	const dialTimeout = 30 * time.Second
	server := servers.StartRedis(t, servers.RedisOptions{})
	proxy := faultproxy.Start(t, server.Addr())
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{proxy.Addr()}, DisableCache: true, DisableRetry: true, ForceSingleClient: true,
		PipelineMultiplex: oneConnection, Dialer: net.Dialer{Timeout: dialTimeout},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	proxy.Cut()
	servers.Poll(t, 10*time.Second, func() error { // until the library has noticed that the connection is lost
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.List(ctx, store.Query{}); err == nil {
			return errors.New("it is still connected")
		}
		return nil
	})
	before := proxy.Accepted()
	proxy.Heal()
	proxy.Hold()
	connecting := make(chan struct{})
	go func() {
		defer close(connecting)
		s.Acquire(context.Background(), redistest.Request("a"))
	}()
	servers.Poll(t, 10*time.Second, func() error {
		if proxy.Accepted() == before {
			return errors.New("it does not connect")
		}
		return nil
	})
	for what, call := range map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error { _, err := s.Acquire(ctx, redistest.Request("b")); return err },
		"Release": func(ctx context.Context) error { return s.Release(ctx, "b", store.NewID(), store.Keep{}) },
		"List":    func(ctx context.Context) error { _, err := s.List(ctx, store.Query{}); return err },
		"Renew": func(ctx context.Context) error {
			_, err := s.Renew(ctx, []store.Renewal{{Name: "b", ID: store.NewID(), TTL: time.Minute, Mode: store.Exclusive}})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		begin := time.Now()
		err := call(ctx)
		cancel()
		if took := time.Since(begin); took > dialTimeout/10 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v after %v, want that its deadline is over", what, err, took)
		}
	}
	proxy.Heal()
	<-connecting
}

func TestCloseDoesNotWaitForAHungServer(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	s, err := store.Open(t.Context(), "redis://"+server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := s.Acquire(t.Context(), redistest.Request("n")); err != nil || !answer.Granted() {
		t.Fatalf("%+v, %v", answer, err)
	}
	server.Stop()
	defer server.Continue()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if _, err := s.Acquire(context.Background(), redistest.Request(fmt.Sprint("n", i))); !errors.Is(err, store.ErrClosed) {
				t.Errorf("call %d: %v, want ErrClosed", i, err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond) // most calls are in flight
	begin := time.Now()
	s.Close()
	all.Wait()
	if took := time.Since(begin); took > time.Second {
		t.Errorf("Close took %v", took)
	}
}

// rueidis reconnects for a subscription, and gives up only after its timeout.
func TestCloseDoesNotWaitForASubscriptionThatConnects(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	s := openQuick(t, "redis://"+server.Addr())
	waiting := redistest.Request("n")
	waiting.Queue = true
	for _, req := range []store.Request{redistest.Request("n"), waiting} {
		if _, err := s.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Wait(t.Context(), "n", waiting.ID); err != nil { // until the subscription starts
		t.Fatal(err)
	}
	server.Stop()
	defer server.Continue()
	// Without a reply, the call ends when the connections are closed.
	if _, err := s.Acquire(context.Background(), redistest.Request("m")); err == nil {
		t.Fatal("a stopped server granted a lock")
	}
	for range 4 {
		go s.Acquire(context.Background(), redistest.Request("m"))
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
		s, err := store.Open(t.Context(), "redis://"+node.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		stores = append(stores, s)
	}
	take := func(s store.Store) int64 {
		t.Helper()
		req := redistest.Request("n")
		answer, err := s.Acquire(t.Context(), req)
		if err == nil {
			err = s.Release(t.Context(), req.Name, req.ID, store.Keep{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return answer.Token
	}
	first := take(stores[0])
	servers.Poll(t, 10*time.Second, func() error {
		if got := nodes[1].Must("GET", "holdfast:token"); got != strconv.FormatInt(first, 10) {
			return fmt.Errorf("the replica has the token %v", got)
		}
		return nil
	})
	nodes[1].Must("REPLICAOF", "NO", "ONE")
	for range 20 {
		old := take(stores[0])
		time.Sleep(10 * time.Millisecond) // longer than tokens can differ from the time of their grant
		if token := take(stores[1]); token <= old {
			t.Fatalf("the promoted replica grants token %d after %d", token, old)
		}
		time.Sleep(10 * time.Millisecond)
		old = take(stores[1])
		time.Sleep(10 * time.Millisecond)
		if token := take(stores[0]); token <= old {
			t.Fatalf("the old primary grants token %d after %d", token, old)
		}
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
		req := redistest.Request("warm")
		_, err := s.Acquire(t.Context(), req)
		return errors.Join(err, s.Leave(t.Context(), req.Name, req.ID))
	})
	proxy.DropRepliesAfter(func(request []byte) bool { return bytes.Contains(request, []byte("WAIT")) })
	req := redistest.Request("a")
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
