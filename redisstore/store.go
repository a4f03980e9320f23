package redisstore

import (
	"fmt"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A Store keeps locks on Redis servers. It implements [store.Store] and [store.Diagnoser], and for
// a node of a quorum also [quorum.Joiner]; programs pass it to holdfast.New.
type Store struct {
	methods
	core *rediscore.Store
	conn *conn
}

// methods are those of a rediscore.Store that a Store has, too.
type methods interface {
	store.Store
	store.Diagnoser
	quorum.Joiner
}

// An Option changes how a store made with New works.
type Option func(*rediscore.Config)

// Replicas makes a grant or a renewal count only when n replicas have it: from 0, the default, to 100. If n is
// the number of all replicas, a failover loses no grant; otherwise that is less likely: see the package
// documentation.
func Replicas(n int) Option {
	return func(c *rediscore.Config) { c.Replicas = n }
}

// New returns a store that uses a client of the program, for a single server, Sentinel or Cluster. Closing the
// store does not close the client. It returns ErrInvalid if client is nil or an option is out of range.
//
// The client needs no client-side caching: with ClientOption.DisableCache it also works for a user that has no
// right to use CLIENT TRACKING.
func New(client rueidis.Client, opts ...Option) (*Store, error) {
	if client == nil {
		return nil, fmt.Errorf("%w: redisstore.New: the client is nil", store.ErrInvalid)
	}
	var config rediscore.Config
	for _, opt := range opts {
		opt(&config)
	}
	return newStore(&conn{client: client}, config)
}

func newStore(c *conn, config rediscore.Config) (*Store, error) {
	config.Cluster = c.isCluster()
	core, err := rediscore.New(c, config)
	if err != nil {
		return nil, err
	}
	return &Store{core, core, c}, nil
}
