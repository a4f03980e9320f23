package zkstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// defaultHeartbeat is how long a waiter that stopped asking keeps its place. A process
	// that died keeps it for as long as its session, so it need not be short; and the longer,
	// the less does waiting cost.
	defaultHeartbeat = 20 * time.Second

	// minTTL is far above a round trip to a server nearby, so that a lease can be renewed
	// several times in it.
	minTTL = 100 * time.Millisecond

	anyVersion = -1

	// looks bounds how often one attempt looks again because others came or went meanwhile.
	looks = 10
)

var (
	_ store.Store = (*Store)(nil)

	errClosed = fmt.Errorf("zookeeper store: %w", store.ErrClosed)
	errLost   = errors.New("zookeeper store: the session has ended, and with it all that was queued or held through it; ask again")
	errCrowd  = errors.New("zookeeper store: others came and went at every look; ask again")
)

// A Store keeps locks on ZooKeeper servers. Make one by a URL: see the package comment.
type Store struct {
	conn      *zk.Conn
	dialer    *dialer
	root      string
	acl       []zk.ACL
	heartbeat time.Duration
	slots     chan struct{}

	closed  atomic.Bool
	done    chan struct{}
	ready   chan struct{} // closed when the first session has begun
	once    sync.Once
	timeout atomic.Int64 // of the session, as granted
	seen    atomic.Int64 // the highest number of a change in a reply to an own request
	secret  bool         // a connection has to log in

	keeper keeper

	mu      sync.Mutex
	session int64
	link    *link         // the newest; nil if it has no session
	lost    chan struct{} // closed when the session has ended
	mine    map[key]*claim
	busy    map[key]chan struct{}
	watches map[watchKey]*watch
	base    base
	clock   clock
}

// A key is one identity at one name.
type key struct {
	name string
	id   store.ID
}

// A claim is a node of this handle's own session: a waiter, or a grant. It is changed with
// the mutex held, by whoever has its key busy: see hold.
type claim struct {
	key
	parent  string
	node    string
	rec     record
	version int32
	mzxid   int64 // of the last change that is known
	mtime   int64
	crowd   bool      // others were seen beside it
	since   time.Time // of its first grant here
	kept    bool      // by a release: to be removed at its end

	turn   <-chan struct{} // of a waiter: the one in front has changed
	closes <-chan struct{} // of a waiter: the name was closed as done

	end   time.Time // not renewed, or not asked for, by then
	index int       // in the heap; -1 if it is not there
}

func (c *claim) path() string { return c.parent + "/" + c.node }

// maxTTL is the longest TTL that the session covers: see the package comment.
func (s *Store) maxTTL() time.Duration {
	return time.Duration(s.timeout.Load()) * 4 / 5
}

// beat is how often a server is spoken to while anything is held, and silence how long it may
// take to answer before another one is tried.
func (s *Store) beat() time.Duration { return time.Duration(s.timeout.Load()) / 10 }

func (s *Store) silence() time.Duration { return time.Duration(s.timeout.Load()) / 5 }

// SessionTimeout is the timeout of the session as the server granted it: how long the locks
// of a process that died stay held. A TTL is at most four fifths of it.
func (s *Store) SessionTimeout() time.Duration { return time.Duration(s.timeout.Load()) }

// Capabilities tells what this store can do.
func (s *Store) Capabilities() store.Capabilities {
	return store.Capabilities{
		Store: "zookeeper",
		Features: store.FeatureShared | store.FeaturePermits | store.FeatureQueue | store.FeatureKeep | store.FeatureList |
			store.FeatureProcesses | store.FeatureHosts | store.FeatureDurable | store.FeatureFailover,
		MinTTL:    minTTL,
		Heartbeat: s.heartbeat,
	}
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// hello is called when a server has begun or resumed a session, or has said that there is
// none any more: then that of the link is 0.
func (s *Store) hello(l *link, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := l.session
	if s.link = l; session == 0 {
		s.link = nil
	} else if !s.secret {
		l.open()
	}
	for k := range s.watches { // they went with the connection before
		s.fire(k)
	}
	s.baseChanged()
	if session == s.session {
		return
	}
	if s.session != 0 {
		close(s.lost)
		s.lost = make(chan struct{})
		for _, c := range s.mine {
			s.keeper.remove(c)
		}
		clear(s.mine)
	}
	s.session = session
	s.seen.Store(0)
	if session != 0 {
		s.timeout.Store(int64(timeout))
		s.once.Do(func() { close(s.ready) })
	}
}

// saw notes the number of a change.
func (s *Store) saw(zxid int64) {
	for {
		seen := s.seen.Load()
		if zxid <= seen || s.seen.CompareAndSwap(seen, zxid) {
			return
		}
	}
}

// adopt notes a node of this session. It fails if that is over.
func (s *Store) adopt(c *claim, session int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session != s.session || session == 0 {
		return errLost
	}
	if old := s.mine[c.key]; old != nil && old != c {
		s.keeper.remove(old)
	}
	s.mine[c.key] = c
	s.keeper.put(c)
	return nil
}

// adoptNew notes a node that was just made. If the session has ended meanwhile, the node may
// be in the next one all the same, which is the library's way with what it had not sent yet:
// it is removed, since nobody would end it.
func (s *Store) adoptNew(c *claim, session int64) error {
	err := s.adopt(c, session)
	if err == nil {
		return nil
	}
	if failed := s.removeNode(c.parent, c.node, anyVersion, false); failed != nil && !errors.Is(failed, zk.ErrNoNode) {
		return errors.Join(err, failed)
	}
	return err
}

// forget drops a claim whose node is gone.
func (s *Store) forget(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c)
}

// drop is forget for who has the mutex.
func (s *Store) drop(c *claim) {
	if s.mine[c.key] == c {
		delete(s.mine, c.key)
	}
	s.keeper.remove(c)
}

func (s *Store) claimOf(k key) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mine[k]
}

// signOfLife keeps a waiter in its place, however long the servers take to answer it. It is
// false if there is nothing of that identity.
func (s *Store) signOfLife(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mine[k]
	if c != nil && !c.rec.granted {
		c.end = time.Now().Add(s.heartbeat)
		s.keeper.put(c)
	}
	return c != nil
}

func (s *Store) currentSession() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session
}

// Close ends this handle and its session: its waiting calls end, and later ones fail with
// store.ErrClosed. What was taken through it and not released stays until its TTL is over.
// Closing again does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.done)
	s.keeper.stop()
	left := make(chan bool, 1)
	go func() { left <- s.leaveGrants() }()
	timeout := time.NewTimer(closeLimit)
	defer timeout.Stop()
	select {
	case ok := <-left:
		if !ok {
			s.dialer.sever() // so that the session keeps them until its timeout
		}
	case <-timeout.C:
		s.dialer.sever()
	}
	s.conn.Close()
	return nil
}

// leaveGrants makes the grants of this session nodes that outlive it, until their TTL is over.
func (s *Store) leaveGrants() bool {
	s.mu.Lock()
	var grants []claim
	for _, c := range s.mine {
		if c.rec.granted {
			grants = append(grants, *c)
		}
	}
	s.mu.Unlock()
	for i := range grants {
		c := &grants[i]
		rec := c.rec
		rec.ttl = max(time.Millisecond, time.Until(c.end))
		_, err := s.conn.Multi(
			&zk.DeleteRequest{Path: c.path(), Version: -1},
			&zk.CreateRequest{Path: c.parent + "/k" + c.node, Acl: s.acl, Data: rec.encode()},
		)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return false
		}
	}
	return true
}
