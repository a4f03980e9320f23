package goredis

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/redisstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A Store keeps locks on Redis servers. Programs pass it to holdfast.New.
type Store = redisstore.Store

// An Option changes how a store works.
type Option = redisstore.Option

// Replicas makes a grant or a renewal count only when n replicas have it: see [redisstore.Replicas].
func Replicas(n int) Option { return redisstore.Replicas(n) }

// New connects to the servers of a client and returns a store. The client is a *redis.Client for a single server, a
// *redis.Client made with NewFailoverClient for Sentinel, or a *redis.ClusterClient. Close closes the connections
// of the store but not the client. A client made with NewFailoverClient must stay open for as long as the store is
// used, because it finds the primary.
//
// New returns ErrInvalid if the client is of another kind, such as a Ring, whose servers are
// independent, if one of its options is refused, or if an option is out of range.
func New(ctx context.Context, client redis.UniversalClient, opts ...Option) (*Store, error) {
	option, err := translate(client)
	if err != nil {
		return nil, err
	}
	var config rediscore.Config
	for _, opt := range opts {
		opt(&config)
	}
	s, err := redisstore.Dial(ctx, option, config)
	if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrInvalid) {
		err = rediscore.Advise(err)
	}
	return s, err
}
