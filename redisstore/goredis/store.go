// Package goredis keeps locks on Redis servers through a go-redis client that the program
// has already. It is the store of package redisstore, with the same keys, scripts and
// promises: programs that use one and programs that use the other lock each other out. Read
// there what Redis can promise.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	s, err := goredis.New(client)
//	if err != nil { … }
//	c, err := holdfast.New(s)
//
// redisstore's own client sends many calls in one pipeline and is faster; use this package
// if the program's connections, credentials or hooks are go-redis'.
package goredis

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	core "github.com/holdfast-lock/holdfast/internal/redis"
	"github.com/holdfast-lock/holdfast/store"
)

// A Store keeps locks on Redis servers.
type Store struct {
	*core.Store
}

var _ store.Store = (*Store)(nil)

// An Option changes how a store works.
type Option func(*core.Config)

// Replicas makes a grant and a renewal count only once so many replicas have it: see
// redisstore. It needs a *redis.Client.
func Replicas(n int) Option {
	return func(c *core.Config) { c.Replicas = n }
}

// New returns a store that uses a *redis.Client, for a single server or, made with
// NewFailoverClient, for Sentinel; or a *redis.ClusterClient. The client stays the
// program's: Close does not close it.
//
// ErrInvalid: the client is of another kind, such as a Ring, whose servers do not know of
// each other; or it reads from replicas, which know too late.
func New(client redis.UniversalClient, opts ...Option) (*Store, error) {
	var config core.Config
	for _, opt := range opts {
		opt(&config)
	}
	config.Name = "redis"
	switch c := client.(type) {
	case *redis.Client:
	case *redis.ClusterClient:
		config.Cluster = true
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, fmt.Errorf("%w: the cluster client may read from replicas, which hear of a lock late: make one without ReadOnly, RouteByLatency and RouteRandomly", store.ErrInvalid)
		}
		if config.Replicas > 0 {
			return nil, fmt.Errorf("%w: Replicas(%d): go-redis cannot wait for the replicas of a Cluster: use redisstore, or leave it out", store.ErrInvalid, config.Replicas)
		}
	default:
		return nil, fmt.Errorf("%w: a client of type %T: want a *redis.Client or a *redis.ClusterClient", store.ErrInvalid, client)
	}
	return &Store{core.New(&conn{client}, config)}, nil
}
