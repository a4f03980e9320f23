package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/internal/stores/batch"
	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// defaultHeartbeat is how long a waiter that stopped asking keeps its place, and so delays the next
	// one. A live waiter asks twice in that time, with a read and a keep-alive.
	defaultHeartbeat = 8 * time.Second

	defaultMinTTL = 2 * time.Second // shortest lease of a server with the usual election timeout of 1 s
	closeTimeout  = 2 * time.Second // of calls in flight, and of revoking unused leases, during Close
)

// An Option changes how a store made with New works.
type Option func(*config)

// Prefix sets the prefix of all keys, which is followed by a slash. The default is "holdfast".
// Only stores with the same prefix exclude each other.
func Prefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

type config struct {
	prefix    string
	heartbeat time.Duration
	minTTL    time.Duration
	conns     *conns // of a client that was opened by URL, which Close closes; otherwise nil
}

// A Store keeps locks on etcd servers. It implements [store.Store]. Programs make one with [New]
// and pass it to holdfast.New, or open it by its URL.
type Store struct {
	client *clientv3.Client
	kv     pb.KVClient
	leases pb.LeaseClient
	config config
	keys   keys

	several bool // there are several servers: if one does not reply, another may

	life handle.Life // streams and batches end with its Work

	pool   pool
	keeper keeper
	waits  waits
	batch  batch.Batcher[batched]

	mu        sync.Mutex
	revision  int64 // the highest one in a reply
	floor     floorMark
	claims    map[claimKey]*claim
	unsettled map[claimKey]unsettled

	settling sync.Mutex // held while the kept records of all identities are settled
}

var _ store.Store = (*Store)(nil)

type claimKey struct {
	name string
	id   store.ID
}

// A claim is what this handle knows about an identity. Only the server knows whether it still holds the
// name or waits for it.
type claim struct {
	mode   store.Mode
	grant  *lease
	create int64 // the revision at which the grant's key was created; 0 if that is not known
	place  *lease

	queued standing // if it waits
}

// New returns a store that uses a client of the program. Close does not close the client. The error
// matches [store.ErrInvalid] if the client is nil, if the prefix is invalid, or if the KV, Lease or
// Watcher of the client was replaced, for example by that of package namespace: the store uses the
// connection itself, so its keys would be outside of the namespace.
func New(client *clientv3.Client, opts ...Option) (*Store, error) {
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	if client == nil {
		return nil, fmt.Errorf("%w: etcd store: the client is nil: make one with clientv3.New", store.ErrInvalid)
	}
	for _, part := range []struct {
		name      string
		has, want any
	}{
		{"KV", client.KV, clientv3.NewKVFromKVClient(nil, nil)},
		{"Lease", client.Lease, clientv3.NewLeaseFromLeaseClient(nil, nil, 0)},
		{"Watcher", client.Watcher, clientv3.NewWatchFromWatchClient(nil, nil)},
	} {
		if reflect.TypeOf(part.has) != reflect.TypeOf(part.want) {
			return nil, fmt.Errorf("%w: etcd store: client.%s was replaced by a %T, which the store would ignore: pass New another clientv3.Client, and instead of a namespace the option Prefix(\"NAMESPACE/holdfast\")",
				store.ErrInvalid, part.name, part.has)
		}
	}
	if err := store.CheckText("prefix", c.prefix); err != nil {
		return nil, err
	}
	return newStore(client, c), nil
}

func newStore(client *clientv3.Client, c config) *Store {
	c.prefix = cmp.Or(strings.Trim(c.prefix, "/"), defaultPrefix)
	c.heartbeat = cmp.Or(c.heartbeat, defaultHeartbeat)
	c.minTTL = cmp.Or(c.minTTL, defaultMinTTL)
	conn := client.ActiveConnection()
	s := &Store{
		client: client, kv: pb.NewKVClient(conn), leases: pb.NewLeaseClient(conn),
		config: c, keys: newKeys(c.prefix), claims: make(map[claimKey]*claim), unsettled: make(map[claimKey]unsettled),
		several: len(client.Endpoints()) > 1,
	}
	s.life.Begin("etcd store")
	s.keeper.store = s
	s.waits = waits{
		store: s, client: pb.NewWatchClient(conn),
		all: make(map[claimKey]*waitState), byID: make(map[int64]*waitState),
	}
	s.batch = batch.Batcher[batched]{
		MaxInFlight: maxFlying, MaxBatch: maxBatch,
		Name: func(one *batched) string { return one.name }, Send: s.sendBatch,
	}
	return s
}

// Capabilities returns what this store supports.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: "etcd",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep | store.FeatureList |
			store.FeatureProcesses | store.FeatureHosts | store.FeatureDurable | store.FeatureFailover,
		MinTTL:    s.config.minTTL,
		Heartbeat: s.config.heartbeat,
	}
}

// Close ends this handle: see [store.Store]. Calls in flight that do not wait get two seconds to finish.
func (s *Store) Close() error {
	if !s.life.Shut() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, s.life.End)()
	s.life.Wait()
	s.life.End()
	s.waits.close()
	s.keeper.close()
	s.batch.Close()
	s.closeLeases(ctx)
	keys := s.unsettledKeys()
	inParallel(len(keys), func(i int) { _, _ = s.settle(ctx, keys[i]) })
	if s.config.conns != nil {
		_ = s.client.Close() // its error only says that the client was closed
	}
	return nil
}

// claim returns what is known about an identity, and whether anything is known.
func (s *Store) claim(key claimKey) (c claim, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[key]; c != nil {
		return *c, true
	}
	return c, false
}

// change changes what is known about an identity. After Close nothing is recorded, because nothing would
// revoke the leases.
func (s *Store) change(key claimKey, f func(c *claim)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[key]
	if c == nil {
		if s.life.Work.Err() != nil {
			return
		}
		c = new(claim)
		s.claims[key] = c
	}
	f(c)
}

// forgetUnsure forgets an identity after it has made sure that no attempt without a reply will be executed. If that
// fails, the leases stay with the claim, and the next call revokes them.
func (s *Store) forgetUnsure(ctx context.Context, key claimKey) error {
	c, _ := s.claim(key)
	if err := cmp.Or(s.revokeUnsure(ctx, c.grant), s.revokeUnsure(ctx, c.place)); err != nil {
		return err
	}
	s.forget(ctx, key)
	return nil
}

// forget drops what is known about an identity that has no keys left, and recycles its leases.
func (s *Store) forget(ctx context.Context, key claimKey) {
	s.mu.Lock()
	c := s.claims[key]
	delete(s.claims, key)
	s.mu.Unlock()
	s.waits.forget(key)
	if c != nil {
		s.recycle(ctx, c.grant)
		s.recycle(ctx, c.place)
	}
}

// explain adds advice to an error.
func (s *Store) explain(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrNotHeld):
		return err
	case s.life.Work.Err() != nil:
		return s.life.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return withAdvice("etcd store", err)
}

func withAdvice(what string, err error) error {
	if advice := advise(err); advice != "" {
		return fmt.Errorf("%s: %s: %s", what, plain(err), advice)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// plain returns the text of an error without the prefix that gRPC adds.
func plain(err error) string {
	if st, ok := status.FromError(err); ok {
		return st.Message()
	}
	return err.Error()
}

// advise says what to do about an error, if that is known.
func advise(err error) string {
	switch rpctypes.Error(err) {
	case rpctypes.ErrPermissionDenied:
		return "the user of the URL may not do this: give it the rights that the package documentation lists"
	case rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken, rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound:
		return "check the user and the password in the URL, as in etcd://user:password@host"
	case rpctypes.ErrNoSpace:
		return "its database is full: compact and defragment it, raise --quota-backend-bytes, then disarm the alarm"
	case rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrNotLeader:
		return "the servers have no leader at the moment: check that more than half of them are up and reach each other"
	case rpctypes.ErrTooManyOps:
		return "raise --max-txn-ops to at least its default of 128"
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return "no server answers: check that the servers are up, that the addresses in the URL are right, and whether they need etcds:// for TLS"
	case codes.DeadlineExceeded:
		return "no reply in time: check that more than half of the servers are up and not overloaded"
	}
	return ""
}
