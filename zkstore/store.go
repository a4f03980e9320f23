package zkstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/batch"
	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	// defaultHeartbeat is how long a waiter that stopped asking keeps its place. The place of a
	// process that died lasts as long as its session, so this need not be short.
	defaultHeartbeat = 20 * time.Second

	minTTL       = 100 * time.Millisecond // several round trips to a server nearby
	requestLimit = 2 * time.Second        // bounds Close, and requests in the background
	looks        = 40                     // how often an attempt may start again because the queue has changed
)

var (
	_          store.Store = (*Store)(nil)
	errLost                = errors.New("zookeeper store: the session ended, with all its locks and places in queues; try again")
	errChanged             = errors.New("zookeeper store: other clients changed the queue at every attempt; try again")
)

// again repeats an attempt that fails with errChanged, as every second one may on a contended name.
func again(attempt func() error) (err error) {
	for range looks {
		if err = attempt(); err != errChanged {
			break
		}
	}
	return err
}

// changed returns errChanged if err is nil or says that a node is gone.
func changed(err error) error { return cmp.Or(ignoreNoNode(err), errChanged) }

// A Store keeps locks on ZooKeeper servers. It implements [store.Store]. Use holdfast.Open to
// open one by its URL: see the package documentation.
type Store struct {
	wire      *wire.Conn
	root      string
	acl       wire.ACL
	heartbeat time.Duration
	writes    batch.Batcher[write]
	sending   sync.Mutex // held to send writes, if their callers have not given up

	life    handle.Life  // counts the work in the background; calls end with the connection
	timeout atomic.Int64 // of the session, as granted

	mu      sync.Mutex
	session int64
	claims  map[wake.Key]*claim
	kept    map[wake.Key]*claim // kept records and suspects, which are removed when they end
	watches map[watchKey]chan struct{}
	tokens  table
	clock   clock
	sweep   sweep
}

// A claim is a node of the current session, for a waiter or a grant, or a record that a release kept. It
// is changed with the mutex held, in the order of the servers' replies.
type claim struct {
	wake.Key
	parent  string
	node    string // its name, without the parent
	rec     record
	version int32
	zxid    int64           // of the node's last change
	crowd   bool            // the name had other nodes when it was last read
	kept    bool            // by a release
	since   time.Time       // when the claim was first granted through this handle
	end     time.Time       // when it ends unless it is renewed
	timer   *time.Timer     // fires at end
	turn    <-chan struct{} // for a waiter: closed when the node in front of it changes
	closes  <-chan struct{} // for a waiter: closed when the name is closed as done
	next    bool            // for a waiter for permits: only holders are in front of it
}

func newClaim(req *store.Request, parent string) *claim {
	return &claim{Key: wake.Key{Name: req.Name, ID: req.ID}, parent: parent, rec: record{Request: *req}}
}

func (c *claim) path() string { return c.parent + "/" + c.node }

// ttl returns the TTL that is granted to a request; see the package documentation.
func (s *Store) ttl(asked time.Duration) time.Duration {
	return min(asked, time.Duration(s.timeout.Load())*4/5).Truncate(time.Millisecond)
}

// Capabilities returns what this store supports.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: "zookeeper",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep | store.FeatureList |
			store.FeatureProcesses | store.FeatureHosts | store.FeatureDurable | store.FeatureFailover,
		MinTTL:    minTTL,
		Heartbeat: s.heartbeat,
	}
}

// explain adds advice to an error of the connection.
func (s *Store) explain(err error) error {
	switch failure := s.wire.Failure(); {
	case err == nil, errors.Is(err, store.ErrNotHeld), errors.Is(err, store.ErrInvalid):
		return err
	case s.life.Closing.Err() != nil:
		return s.life.ErrClosed
	case err == wire.ErrLost:
		return errLost
	case err == wire.ErrNoAuth, err == wire.ErrInvalidACL, failure == wire.ErrAuthFailed:
		return fmt.Errorf("%w: zookeeper store: %w at %s: check the user and the password in the URL, and the ACL of that node",
			store.ErrInvalid, cmp.Or(failure, err), s.root)
	case failure != nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("zookeeper store: %w: %w; check that a majority of the servers is up and can be reached", failure, err)
	}
	return err
}

func ignoreNoNode(err error) error {
	if err == wire.ErrNoNode {
		return nil
	}
	return err
}

// sessionChanged is called by the connection when a session has begun or was resumed over a
// new connection, and with 0 when it has ended.
func (s *Store) sessionChanged(id int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.watches { // the servers forgot them when the connection ended
		s.fire(k)
	}
	s.tokens.known = false
	if id != 0 { // a server that resumes the session may grant a shorter timeout than the previous one
		s.timeout.Store(int64(timeout))
	}
	if id == s.session {
		return
	}
	for _, c := range s.claims {
		s.forgetLocked(c)
	}
	s.session = id
}

// adopt records a node of this session with the Stat of its last write, from the reply to it, and starts its
// timer. The caller holds the mutex and handles replies in their order, so this session created the node.
func (s *Store) adopt(c *claim, stat *wire.Stat) {
	if old := s.claims[c.Key]; old != nil && old != c {
		s.forgetLocked(old)
	}
	c.version, c.zxid = stat.Version, stat.Mzxid
	s.clock = clock{stat.Mtime, time.Now()}
	s.claims[c.Key] = c
	s.arm(c, s.lifeOf(c))
}

// lifeOf returns how long a claim lives unless it is renewed or asked for again.
func (s *Store) lifeOf(c *claim) time.Duration {
	if c.rec.granted {
		return c.rec.TTL
	}
	return s.heartbeat
}

// forget drops a claim whose node is gone.
func (s *Store) forget(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(c)
}

func (s *Store) forgetLocked(c *claim) {
	for _, m := range []map[wake.Key]*claim{s.claims, s.kept} {
		if m[c.Key] == c {
			delete(m, c.Key)
		}
	}
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (s *Store) claimOf(k wake.Key) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[k]
}

// state returns the record of a claim and the zxid of its last change.
func (s *Store) state(c *claim) (rec record, zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.rec, c.zxid
}

// Close ends this handle and its session; see [store.Store].
func (s *Store) Close() error {
	if !s.life.Shut() {
		return nil
	}
	s.life.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	// If the grants cannot be replaced, the session is left open and keeps them until its timeout.
	s.wire.Close(ctx, s.leaveGrants(ctx))
	s.writes.Close()
	return nil
}

// leaveGrants replaces the grants of this session by nodes that outlive it until their TTL is over, and
// reports whether it replaced all of them.
func (s *Store) leaveGrants(ctx context.Context) bool {
	s.mu.Lock()
	var calls []*wire.Call
	for _, c := range s.claims {
		c.timer.Stop()
		if rec := c.rec; rec.granted {
			rec.TTL = max(time.Millisecond, time.Until(c.end))
			calls = append(calls, &wire.Call{Op: wire.Multi(
				wire.Delete(c.path(), wire.AnyVersion),
				wire.Create(c.parent+"/k"+c.node, rec.encode(), s.acl, wire.Persistent))})
		}
	}
	for _, c := range s.kept {
		c.timer.Stop()
	}
	s.mu.Unlock()
	if err := s.wire.Do(ctx, calls...); err != nil && err == ctx.Err() {
		return false // the calls may still be in flight
	}
	return !slices.ContainsFunc(calls, func(call *wire.Call) bool { return ignoreNoNode(call.Err) != nil })
}
