package goredis

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/await"
)

// maxTries bounds how often a command is sent again because a server does not know its script
// or does not have its slot.
const maxTries = 6

// A router knows which server has a key. There are several servers only on a Cluster. On a
// Cluster the router asks the program's client first, and MOVED replies of servers correct it.
type router struct {
	cluster *redis.ClusterClient // nil if it is not a Cluster
	only    *server              // nil if it is a Cluster

	mu      sync.Mutex
	closed  bool
	known   bool               // servers contains all servers that the program's client knows
	opts    *redis.Options     // of any server
	servers map[string]*server // by address
	tags    map[string]*server // by hash tag: the server that has its slot
}

func newRouter(client redis.UniversalClient) *router {
	r := &router{servers: make(map[string]*server), tags: make(map[string]*server)}
	switch c := client.(type) {
	case *redis.Client:
		r.only = newServer(c.Options())
	case *redis.ClusterClient:
		r.cluster = c
	}
	return r
}

// tag returns the part of a key or channel that determines its slot.
func tag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	t, _, _ := strings.Cut(rest, "}")
	return t
}

// find returns the server that has a key.
func (r *router) find(ctx context.Context, key string) (*server, error) {
	if r.only != nil {
		return r.only, nil
	}
	if err := r.learn(ctx); err != nil {
		return nil, err
	}
	t := tag(key)
	r.mu.Lock()
	s := r.tags[t]
	r.mu.Unlock()
	if s != nil {
		return s, nil
	}
	node, err := await.Call(ctx, func() (*redis.Client, error) { return r.cluster.MasterForKey(ctx, key) }, nil)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s = r.tags[t]; s == nil {
		if s, err = r.server(node.Options().Addr); err == nil {
			r.tags[t] = s
		}
	}
	return s, err
}

// learn asks the program's client once which servers there are. If the server of a slot is gone,
// any other server knows which one has the slot now.
func (r *router) learn(ctx context.Context) error {
	r.mu.Lock()
	known := r.known
	r.mu.Unlock()
	if known {
		return nil
	}
	all, err := await.Call(ctx, func() ([]*redis.Options, error) {
		var mu sync.Mutex
		var all []*redis.Options
		err := r.cluster.ForEachShard(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, node.Options())
			return nil
		})
		return all, err
	}, nil)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("the cluster client knows no servers")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.opts = true, all[0]
	for _, opts := range all {
		if _, err := r.server(opts.Addr); err != nil {
			return err
		}
	}
	return nil
}

// server returns the server at an address. The caller holds the mutex.
func (r *router) server(addr string) (*server, error) {
	if r.closed {
		return nil, errClosed
	}
	s := r.servers[addr]
	if s == nil {
		opts := *r.opts
		opts.Addr, opts.NodeAddress = addr, ""
		s = newServer(&opts)
		r.servers[addr] = s
	}
	return s, nil
}

// movedTo returns the address in a MOVED reply.
func movedTo(err error) (addr string, ok bool) { return redirect(err, "MOVED ") }

// askAt returns the address in an ASK reply.
func askAt(err error) (addr string, ok bool) { return redirect(err, "ASK ") }

func redirect(err error, word string) (addr string, ok bool) {
	if err == nil || !strings.HasPrefix(err.Error(), word) {
		return "", false
	}
	fields := strings.Fields(err.Error())
	return fields[len(fields)-1], len(fields) == 3
}

// moved records that the slot of a key is at another address, as a server has replied, and
// returns the server there.
func (r *router) moved(from *server, key, addr string) (*server, error) {
	r.cluster.ReloadState(context.Background())
	to, err := r.at(from, addr)
	if err != nil {
		return nil, err
	}
	t := tag(key)
	r.mu.Lock()
	r.tags[t] = to
	r.mu.Unlock()
	if to != from {
		from.hub.end(func(channel string) bool { return tag(channel) == t })
	}
	return to, nil
}

// at returns the server at an address from the reply of another server.
func (r *router) at(from *server, addr string) (*server, error) {
	if strings.HasPrefix(addr, ":") { // at the same host
		host, _, _ := net.SplitHostPort(from.opts.Addr)
		addr = host + addr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server(addr)
}

// failed records that the server of a key could not be reached. The next command for the key goes
// to another server, which replies with MOVED if it does not have the slot.
func (r *router) failed(s *server, key string) {
	if r.cluster == nil {
		return
	}
	r.cluster.ReloadState(context.Background())
	r.mu.Lock()
	defer r.mu.Unlock()
	t := tag(key)
	if r.tags[t] != s {
		return
	}
	others := slices.DeleteFunc(slices.Collect(maps.Values(r.servers)), func(other *server) bool { return other == s })
	if len(others) > 0 {
		r.tags[t] = others[rand.IntN(len(others))]
	}
}

// primaries returns the servers that have keys, in a stable order.
func (r *router) primaries(ctx context.Context) ([]*server, error) {
	if r.only != nil {
		return []*server{r.only}, nil
	}
	if err := r.learn(ctx); err != nil {
		return nil, err
	}
	addrs, err := await.Call(ctx, func() ([]string, error) {
		var mu sync.Mutex
		var addrs []string
		err := r.cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			addrs = append(addrs, node.Options().Addr)
			return nil
		})
		return addrs, err
	}, nil)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*server
	for _, addr := range slices.Sorted(slices.Values(addrs)) {
		s, err := r.server(addr)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (r *router) close() {
	r.mu.Lock()
	r.closed = true
	all := slices.Collect(maps.Values(r.servers))
	r.mu.Unlock()
	if r.only != nil {
		all = append(all, r.only)
	}
	for _, s := range all {
		s.close()
	}
}
