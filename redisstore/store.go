package redisstore

import (
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis"
	"github.com/holdfast-lock/holdfast/store"
)

// A Store keeps locks on Redis servers. Make one with [New], or by a URL.
type Store struct {
	*redis.Store
	conn *conn
}

var _ store.Store = (*Store)(nil)

// An Option changes how a store made with New works.
type Option func(*redis.Config)

// Replicas makes a grant and a renewal count only once so many replicas have it. It narrows
// what a failover can lose, and does not close it: see the package comment.
func Replicas(n int) Option {
	return func(c *redis.Config) { c.Replicas = n }
}

// New returns a store that uses a client of the program's own, for a single server, Sentinel
// or Cluster. The client stays the program's: Close does not close it.
//
// The client needs no client-side caching: with ClientOption.DisableCache it also works for
// a user that may not use CLIENT TRACKING.
func New(client rueidis.Client, opts ...Option) *Store {
	var config redis.Config
	for _, opt := range opts {
		opt(&config)
	}
	return newStore(&conn{client: client}, config)
}

func newStore(c *conn, config redis.Config) *Store {
	config.Name = "redis"
	config.Cluster = c.client.Mode() == rueidis.ClientModeCluster
	return &Store{redis.New(c, config), c}
}
