package goredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustNew(t testing.TB, client redis.UniversalClient, opts ...Option) *Store {
	t.Helper()
	s, err := New(t.Context(), client, opts...)
	must(t, err)
	t.Cleanup(func() {
		s.Close()
		client.Close()
	})
	return s
}

// poll waits until check returns nil.
func poll(t testing.TB, check func() error) {
	t.Helper()
	servers.Poll(t, 20*time.Second, check)
}

func connected(t testing.TB, server *servers.Redis) int {
	t.Helper()
	return strings.Count(server.Must("CLIENT", "LIST").(string), "\n") - 1 // not counting the connection of this command
}

func TestCloseLeavesTheClientOpenAndNothingElse(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	must(t, client.Ping(t.Context()).Err())
	before := connected(t, server)
	s := mustNew(t, client)
	suites.Granted(t, s, suites.Request("n"))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	poll(t, func() error {
		if n := connected(t, server); n > before {
			return fmt.Errorf("%d connections, %d before", n, before)
		}
		return nil
	})
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the program's client: %v", err)
	}
}

// go-redis waits for the hung one, though the others have replied.
func TestASentinelThatHangsDoesNotKeepTheStoreFromOpening(t *testing.T) {
	group := servers.StartSentinel(t, 0, 2, servers.RedisOptions{})
	group.Sentinels[0].Stop()
	s := mustNew(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: servers.SentinelName, SentinelAddrs: group.Addrs()}))
	suites.Granted(t, s, suites.Request("n"))
}

func TestAnExhaustedPoolOfTheProgramDoesNotStopTheStore(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, ReadTimeout: -1})
	s := mustNew(t, client)
	blocked := make(chan error, 1)
	go func() { blocked <- client.BLPop(context.Background(), 0, "queue").Err() }()
	poll(t, func() error {
		if !strings.Contains(server.Must("CLIENT", "LIST").(string), "cmd=blpop") {
			return errors.New("it does not block")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	req := suites.Request("n")
	if answer, err := s.Acquire(ctx, req); err != nil || !answer.Granted() {
		t.Errorf("%+v, %v", answer, err)
	}
	server.Must("RPUSH", "queue", "x")
	if err := <-blocked; err != nil {
		t.Error(err)
	}
}

func TestShortDeadlinesDoNotKeepTheStoreFromConnecting(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	far := faultproxy.Start(t, server.Addr())
	far.ToServer.Delay(60 * time.Millisecond)
	far.ToClient.Delay(60 * time.Millisecond)
	s := mustNew(t, redis.NewClient(&redis.Options{Addr: far.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-time.After(250 * time.Millisecond): // as for TLS
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}))
	far.Cut()
	far.Heal()
	req := suites.Request("n")
	// The deadline is shorter than the time to dial, and longer than that of a command.
	poll(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := s.Acquire(ctx, req)
		return err
	})
}

func TestErrorsOfAWrongClientSayWhatToDo(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{Password: "secret"})
	group := servers.StartSentinel(t, 1, 1, servers.RedisOptions{})
	for says, client := range map[string]redis.UniversalClient{
		"requires a user or password": redis.NewClient(&redis.Options{Addr: server.Addr()}),
		"the password is wrong":       redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "wrong"}),
		"NewFailoverClient":           redis.NewClient(&redis.Options{Addr: group.Addrs()[0]}),
		"not a Cluster":               redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}, Password: "secret"}),
		"connection refused":          redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}),
		"this is a replica": redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: servers.SentinelName, SentinelAddrs: group.Addrs(), ReplicaOnly: true,
		}),
	} {
		t.Cleanup(func() { client.Close() })
		s, err := New(t.Context(), client)
		if err == nil {
			t.Cleanup(func() { s.Close() })
			_, err = s.Acquire(t.Context(), suites.Request("n"))
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}

func TestAServerWithTLSAndAPassword(t *testing.T) {
	certs := servers.NewCertificates(t)
	server := servers.StartRedis(t, servers.RedisOptions{TLS: certs, Password: "secret"})
	config := certs.Config.Clone()
	// The dialer ignores its context, as the dialer of go-redis does with TLS.
	dial := func(_ context.Context, network, addr string) (net.Conn, error) {
		return tls.Dial(network, addr, config)
	}
	for what, opts := range map[string]*redis.Options{
		"options": {Addr: server.Addr(), TLSConfig: config, Password: "secret"},
		"dialer":  {Addr: server.Addr(), Dialer: dial, CredentialsProvider: func() (string, string) { return "", "secret" }},
	} {
		s := mustNew(t, redis.NewClient(opts))
		req := suites.Request("n: " + what)
		suites.Granted(t, s, req)
		suites.Release(t, s, req)
	}
}

func TestAWriteWithALowerTokenIsRefused(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for range 2 { // the first time the server does not know the script yet
		if got, err := Fenced(t.Context(), client, "k", 5, "INCR"); err != nil {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if _, err := Fenced(t.Context(), client, "k", 4, "INCR"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("%v, want ErrStale", err)
	}
}

// Each of these calls needs a connection of its own, and there is only one at first.
func TestManyCallsThatWaitForReplicasGetTheirConnections(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	servers.StartRedis(t, servers.RedisOptions{Config: []string{"replicaof 127.0.0.1 " + strconv.Itoa(server.Port)}})
	s := mustNew(t, redis.NewClient(&redis.Options{Addr: server.Addr()}), Replicas(1))
	servers.Poll(t, 10*time.Second, func() error { // until the replica follows
		req := suites.Request("warm")
		_, err := s.Acquire(t.Context(), req)
		return errors.Join(err, s.Leave(t.Context(), req.Name, req.ID))
	})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if _, err := s.Acquire(t.Context(), suites.Request(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// No connection ends and no call fails, so only the Sentinels can tell that there is a new primary.
func TestAnOldPrimaryThatSentinelsCannotDemoteIsLeft(t *testing.T) {
	group := servers.StartSentinel(t, 1, 1, servers.RedisOptions{})
	s := mustNew(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: servers.SentinelName, SentinelAddrs: group.Addrs()}))
	suites.Granted(t, s, suites.Request("n")) // connects
	old := group.Primary()
	old.Must("ACL", "SETUSER", "default", "-slaveof", "-replicaof", "-client|kill")
	group.Sentinels[0].Must("SENTINEL", "FAILOVER", servers.SentinelName)
	next := group.AwaitFailover(old)
	poll(t, func() error {
		req := suites.Request("m")
		if _, err := s.Acquire(t.Context(), req); err != nil {
			return err
		}
		if next.Must("EXISTS", "holdfast:lock:m") != int64(1) {
			return errors.Join(errors.New("locks are taken on the old primary"), s.Leave(t.Context(), "m", req.ID))
		}
		return nil
	})
}
