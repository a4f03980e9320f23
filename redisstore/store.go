package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// A Store keeps locks on Redis servers. It implements [store.Store]; programs pass it to
// holdfast.New.
type Store struct {
	core *rediscore.Store
	conn *conn
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Diagnoser = (*Store)(nil)
	_ quorum.Joiner   = (*Store)(nil)
)

// An Option changes how a store made with New works.
type Option func(*rediscore.Config)

// Replicas makes a grant or a renewal count only when n replicas have it. The default is 0, and
// the maximum is 100. If n is the number of all replicas, a failover loses no grant; otherwise it
// narrows the window in which that happens: see the package documentation.
func Replicas(n int) Option {
	return func(c *rediscore.Config) { c.Replicas = n }
}

// New returns a store that uses a client of the program, for a single server, Sentinel or
// Cluster. Close does not close the client.
//
// The client needs no client-side caching: with ClientOption.DisableCache it also works for
// a user that has no right to use CLIENT TRACKING.
//
// New returns ErrInvalid if client is nil or an option is out of range.
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
	return &Store{core, c}, nil
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

// Close closes the store: calls blocked in Wait end, and later calls fail with [store.ErrClosed].
// It does not close a client that was passed to New. Grants that were not released stay until their
// TTL is over. A second Close does nothing.
func (s *Store) Close() error { return s.core.Close() }
