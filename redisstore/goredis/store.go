// Package goredis keeps locks on Redis servers through a go-redis client that the program already
// has. It is the store of package redisstore, with the same keys, scripts and promises: programs
// that use either package exclude each other. The documentation of package redisstore describes
// what Redis promises.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	s, err := goredis.New(client)
//	if err != nil { … }
//	c, err := holdfast.New(s)
//
// Package redisstore sends many calls in one pipeline and is faster. Use this package if the
// program has its addresses, credentials and dialer in a go-redis client.
//
// # Connections
//
// The store takes the address, credentials, TLS, dialer and OnConnect from the client's options
// and opens its own connections: to each server at most 16 for commands, and one that listens
// for all waiters. It does not borrow connections of the client: the client's pool may be used up
// when a lease must be renewed, and the client does not stop a command when its context ends.
// Hooks of the client do not see the commands of the store.
//
// A call returns when its context ends. A connection on which a reply is overdue is closed, and
// the next command gets a new one. This happens after 2 s, or when a call that has waited for at
// least 100 ms reaches its deadline. The deadline of a renewal is a sixth of its TTL. A
// connection that only listens is closed if nothing was received for 2.5 s.
//
// With Sentinels, go-redis finds the primary for each new connection. If the Sentinel that it asks
// hangs, it asks the others after all retries have timed out: after about 17 s with the defaults of
// redis.FailoverOptions, and sooner with a shorter ReadTimeout and fewer MaxRetries.
//
// # Cancelled commands
//
// A clean-up must not reach the server before the command that it undoes. Commands of one lock
// are therefore sent one after the other. If the connection of the first command was closed
// because its reply did not arrive, the next command uses a new connection. The server answers
// the handshake of the new connection after it has read everything that the old one had
// delivered. Only packets that the network held back can still arrive later. In that case no
// client knows of the lock that they take, and it ends with its TTL. The same applies to
// redisstore.
package goredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-lock/holdfast/internal/rediscore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A Store keeps locks on Redis servers. It implements [store.Store]; programs pass it to
// holdfast.New.
type Store struct {
	core *rediscore.Store
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Diagnoser = (*Store)(nil)
	_ quorum.Joiner   = (*Store)(nil)
)

// An Option changes how a store works.
type Option func(*rediscore.Config)

// Replicas makes a grant or a renewal count only when n replicas have it. The default is 0, and
// the maximum is 100. It narrows the window in which a failover can lose a grant, but does not
// close it: see the documentation of package redisstore.
func Replicas(n int) Option {
	return func(c *rediscore.Config) { c.Replicas = n }
}

// New returns a store on the servers of a client. The client is a *redis.Client for a single
// server, a *redis.Client made with NewFailoverClient for Sentinel, or a *redis.ClusterClient.
// Close closes the connections of the store but not the client, which must stay open for as long
// as the store is used.
//
// New returns ErrInvalid if the client is of another kind, such as a Ring, whose servers are
// independent. It also returns ErrInvalid if the client reads from replicas, which learn of a
// lock too late, if its servers are not a real Cluster, as with NewFailoverClusterClient, or if
// an option is out of range.
func New(client redis.UniversalClient, opts ...Option) (*Store, error) {
	var config rediscore.Config
	for _, opt := range opts {
		opt(&config)
	}
	switch c := client.(type) {
	case *redis.Client:
	case *redis.ClusterClient:
		config.Cluster = true
		o := c.Options()
		if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, fmt.Errorf("%w: the cluster client may read from replicas, which learn of a lock late: make one without ReadOnly, RouteByLatency and RouteRandomly", store.ErrInvalid)
		}
		if o.ClusterSlots != nil {
			return nil, fmt.Errorf("%w: the cluster client has ClusterSlots, so its servers may not be a Redis Cluster: for Sentinel use redis.NewFailoverClient", store.ErrInvalid)
		}
	default:
		return nil, fmt.Errorf("%w: a client of type %T: want a *redis.Client or a *redis.ClusterClient", store.ErrInvalid, client)
	}
	core, err := rediscore.New(&conn{newRouter(client)}, config)
	if err != nil {
		return nil, err
	}
	return &Store{core}, nil
}

// JoinQuorum makes the servers one node of a quorum: see [quorum.Joiner]. Programs do not call it.
func (s *Store) JoinQuorum() { s.core.JoinQuorum() }

// Capabilities returns what the store supports.
func (s *Store) Capabilities() store.Capabilities { return s.core.Capabilities() }

// Acquire makes one attempt to take a name: see [store.Store].
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	return s.core.Acquire(ctx, req)
}

// Wait blocks until a queued request should ask again: see [store.Store].
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	return s.core.Wait(ctx, name, id)
}

// Leave removes a request from the queue and releases its grant if it has one: see [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	return s.core.Leave(ctx, name, id)
}

// Renew extends grants: see [store.Store]. If one renewal fails, the others are not affected.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	return s.core.Renew(ctx, grants)
}

// Release ends a grant, or keeps its name closed for a time: see [store.Store].
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	return s.core.Release(ctx, name, id, keep)
}

// Break ends a grant or a kept record by force: see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	return s.core.Break(ctx, name, id)
}

// List returns one page of the names that have holders or waiters: see [store.Store].
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	return s.core.List(ctx, q)
}

// Diagnose checks whether the servers are set up safely for locks with that TTL: see
// [store.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, ttl time.Duration) []store.Finding {
	return s.core.Diagnose(ctx, ttl)
}

// Close closes the store and its connections, but not the client that was passed to New: calls
// blocked in Wait end, and later calls fail with [store.ErrClosed]. Grants that were not released
// stay until their TTL is over. A second Close does nothing.
func (s *Store) Close() error { return s.core.Close() }
