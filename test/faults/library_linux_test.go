package faults

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredisclient "github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/redisstore/goredis"
	"github.com/holdfast-lock/holdfast/store"
)

// The URL schemes that choose between the two client libraries for Redis. Programs have no URLs
// for go-redis. These are for the tests and their child processes.
const (
	viaRueidis = "redis"
	viaGoRedis = "goredis"
)

func init() {
	for _, kind := range []string{"", "+sentinel", "+cluster"} {
		store.Register(viaGoRedis+kind, openGoRedis)
	}
}

// owning is a store that also closes its client.
type owning struct {
	store.Store
	client goredisclient.UniversalClient
}

func (o owning) Close() error {
	err := o.Store.Close()
	o.client.Close()
	return err
}

// openGoRedis opens a store on a client with the default options, as in most programs.
func openGoRedis(ctx context.Context, u *store.URL) (store.Store, error) {
	var opts []goredis.Option
	if n, err := strconv.Atoi(u.Query.Get("replicas")); err == nil {
		opts = append(opts, goredis.Replicas(n))
	}
	_, kind, _ := strings.Cut(u.Scheme, "+")
	return newGoRedis(ctx, goRedisClient(kind, u.Hosts, nil), opts...)
}

func newGoRedis(ctx context.Context, client goredisclient.UniversalClient, opts ...goredis.Option) (store.Store, error) {
	s, err := goredis.New(ctx, client, opts...)
	if err != nil {
		client.Close()
		return nil, err
	}
	return owning{s, client}, nil
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

func goRedisClient(kind string, hosts []string, dial dialer) goredisclient.UniversalClient {
	switch kind {
	case "sentinel":
		return goredisclient.NewFailoverClient(&goredisclient.FailoverOptions{MasterName: "primary", SentinelAddrs: hosts, Dialer: dial})
	case "cluster":
		return goredisclient.NewClusterClient(&goredisclient.ClusterOptions{Addrs: hosts, Dialer: dial})
	}
	return goredisclient.NewClient(&goredisclient.Options{Addr: hosts[0], Dialer: dial})
}

// dialBy returns a dialer that replaces the addresses in by with others.
func dialBy(by map[string]string) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if other, ok := by[addr]; ok {
			addr = other
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

// dialGoRedis is like dial, for go-redis.
func (b *bed) dialGoRedis(by map[string]string, heartbeat time.Duration, opts ...holdfast.Option) *holdfast.Client {
	b.t.Helper()
	kind, hosts := "", []string{b.nodes[0].Addr()}
	switch {
	case b.group != nil:
		kind, hosts = "sentinel", b.group.Addrs()
	case b.shards != nil:
		kind, hosts = "cluster", b.shards.Addrs()
	}
	s, err := newGoRedis(b.t.Context(), goRedisClient(kind, hosts, dialBy(by)), func(c *rediscore.Config) { c.Heartbeat = heartbeat })
	if err != nil {
		b.t.Fatal(err)
	}
	return b.own(s, opts...)
}

// own returns a client that is closed together with its store.
func (b *bed) own(s store.Store, opts ...holdfast.Option) *holdfast.Client {
	b.t.Helper()
	c, err := holdfast.New(s, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.dialled.Store(c, sync.OnceFunc(func() { s.Close() }))
	b.t.Cleanup(func() { b.close(c) })
	return c
}

// Programs may use the same quorum by its URL and by any of the client libraries. Tokens grow
// nevertheless.
func TestTokensGrowForAllKindsOfClientsOfAQuorum(t *testing.T) {
	t.Parallel()
	b := quorumBed(t, 3, servers.RedisOptions{InMemory: true})
	h := new(History)
	var ends, ofLibrary []func() error
	nodesBy := func(open func(addr string) (store.Store, error)) *holdfast.Client {
		var nodes []quorum.Node
		for _, n := range b.nodes {
			s, err := open(n.Addr())
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, quorum.Node{Name: n.Addr(), Store: s})
		}
		s, err := quorum.New(t.Context(), nodes, quorum.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(s)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, c.Close, s.Close)
		return c
	}
	clients := []*holdfast.Client{
		b.open(),
		nodesBy(func(addr string) (store.Store, error) { return store.Open(t.Context(), "redis://"+addr) }),
		nodesBy(func(addr string) (store.Store, error) {
			client := goRedisClient("", []string{addr}, nil)
			ofLibrary = append(ofLibrary, client.Close)
			return goredis.New(t.Context(), client)
		}),
	}
	for range 50 {
		for _, c := range clients {
			record(h).must(t, c, "n", longTTL).mustUnlock(t)
		}
	}
	// The same, with contention.
	var all sync.WaitGroup
	for _, c := range clients {
		for range 2 {
			all.Go(func() {
				for range 50 {
					if lease, err := record(h).lock(t.Context(), c, "n", longTTL); err != nil {
						t.Error(err)
					} else {
						lease.mustUnlock(t)
					}
				}
			})
		}
	}
	all.Wait()
	if want := 50*len(clients) + 100*len(clients); h.Len() != want {
		t.Errorf("%d locks, want %d", h.Len(), want)
	}
	check(t, h.Check())
	for _, end := range append(ends, ofLibrary...) {
		check(t, end())
	}
	b.clean(soon, clients[0])
}
