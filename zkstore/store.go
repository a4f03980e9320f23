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

	keeper keeper

	mu      sync.Mutex
	session int64
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
// none any more: then session is 0.
func (s *Store) hello(session int64, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	if session != 0 {
		s.timeout.Store(int64(timeout))
		s.once.Do(func() { close(s.ready) })
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

// Acquire makes one attempt to take a name: see store.Store. Asking again under the identity
// of a live grant or waiter in another mode, weight or limit is an ErrInvalid. The TTL as
// granted is at most four fifths of the session's timeout.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if req.Floor >= store.MaxToken {
		return store.Answer{}, tokensOver(req.Floor)
	}
	return do(ctx, s, func() (store.Answer, error) {
		free, err := s.hold(ctx, key{req.Name, req.ID})
		if err != nil {
			return store.Answer{}, err
		}
		defer free()
		req.TTL = s.ttl(req.TTL)
		req.Tokens = min(max(req.Tokens, 1), maxBlock)
		return s.acquire(ctx, &req)
	})
}

func (s *Store) ttl(asked time.Duration) time.Duration {
	return min(asked, s.maxTTL()).Truncate(time.Millisecond)
}

func (s *Store) acquire(ctx context.Context, req *store.Request) (store.Answer, error) {
	for range looks {
		if err := s.usable(ctx); err != nil {
			return store.Answer{}, err
		}
		if !s.signOfLife(key{req.Name, req.ID}) {
			answer, ok, err := s.takeFree(req)
			if ok || err != nil {
				return answer, err
			}
		}
		answer, ok, err := s.stand(ctx, req)
		if ok || err != nil {
			return answer, err
		}
	}
	return store.Answer{}, errCrowd
}

// takeFree takes a name that nobody uses: parent and node are made at once, so nobody can be
// in front. It is not ok if the parent exists.
func (s *Store) takeFree(req *store.Request) (answer store.Answer, ok bool, err error) {
	added, err := s.tokenBase()
	if err != nil {
		return answer, false, err
	}
	parent, bucket := s.place(req.Name)
	c := &claim{key: key{req.Name, req.ID}, parent: parent, node: requestNode(req) + firstSeq, rec: recordOf(req), index: -1}
	c.rec.granted, c.rec.base = true, added.value
	ops := []any{
		&zk.CreateRequest{Path: parent, Acl: s.acl, Flags: zk.FlagContainer},
		&zk.CreateRequest{Path: c.path(), Acl: s.acl, Flags: zk.FlagEphemeral, Data: c.rec.encode()},
	}
	session := s.currentSession()
	results, err := s.conn.Multi(ops...)
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.ensure(bucket); err != nil {
			return answer, false, err
		}
		results, err = s.conn.Multi(ops...)
	}
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return answer, false, nil
	case err != nil:
		return answer, false, err
	}
	var stat zk.Stat
	if stat.Mzxid, stat.Mtime, err = parseChange(results[0].String); err != nil {
		return answer, false, err
	}
	s.changed(c, &stat)
	c.since = time.Now()
	c.end = c.since.Add(req.TTL)
	if err := s.adoptNew(c, session); err != nil {
		return answer, false, err
	}
	answer, err = s.granted(c, req, added, 0)
	return answer, true, err
}

// ensure makes a node and those above it, if they are not there. They are containers: the
// server removes them when they are empty.
func (s *Store) ensure(path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, err := s.conn.CreateContainer(path[:i], nil, zk.FlagContainer, s.acl)
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists):
		case errors.Is(err, zk.ErrNoAuth) && i < len(path): // may exist without being ours
			if found, _, err := s.conn.Exists(path[:i]); err == nil && found {
				continue
			}
			return err
		default:
			return err
		}
	}
	return nil
}

// changed notes the outcome of a write of a claim's node.
func (s *Store) changed(c *claim, stat *zk.Stat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(c, stat)
}

// note is changed for who has the mutex.
func (s *Store) note(c *claim, stat *zk.Stat) {
	c.version, c.mzxid, c.mtime = stat.Version, stat.Mzxid, stat.Mtime
	if c.rec.granted {
		c.rec.settle(stat)
	}
	s.clock.note(stat.Mtime)
}

// Leave takes an identity out of the queue and gives back its grant: see store.Store.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	_, err := do(ctx, s, func() (struct{}, error) {
		free, err := s.hold(ctx, key{name, id})
		if err != nil {
			return struct{}{}, err
		}
		defer free()
		if c := s.claimOf(key{name, id}); c != nil {
			if err := s.remove(c); err == nil || !errors.Is(err, zk.ErrNoNode) {
				return struct{}{}, err
			}
		}
		return struct{}{}, s.leaveOthers(name, id)
	})
	return err
}

// leaveOthers removes what an identity has at a name though this handle does not know of it:
// another made it, or the answer was lost.
func (s *Store) leaveOthers(name string, id store.ID) error {
	q, err := s.look(name)
	if err != nil || q == nil {
		return err
	}
	for _, n := range q.nodes {
		if n.id != id || n.kept && n.rec.state != store.Held {
			continue
		}
		if err := s.removeNode(q.parent, n.name, anyVersion, len(q.nodes) > 1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// brief is how long a lock is held that most likely nobody has come to wait for.
const brief = time.Millisecond

// remove deletes the node of a claim. To try it together with the parent costs whoever waits
// a round trip more: so that is for locks that were held briefly.
func (s *Store) remove(c *claim) error {
	long := !c.crowd && time.Since(c.since) > brief
	err := s.removeNode(c.parent, c.node, anyVersion, c.crowd || long)
	if err == nil && long {
		s.conn.Delete(c.parent, -1) // fails if there are others; else it is an empty container
	}
	if err == nil || errors.Is(err, zk.ErrNoNode) {
		s.forget(c)
	}
	return err
}

// removeNode deletes a node, and its parent if it is the last: a name that nobody uses leaves
// nothing. The path has the identity in it, so that no other can be hit.
func (s *Store) removeNode(parent, node string, version int32, crowd bool) error {
	path := parent + "/" + node
	if !crowd {
		_, err := s.conn.Multi(&zk.DeleteRequest{Path: path, Version: version}, &zk.DeleteRequest{Path: parent, Version: -1})
		if !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
	}
	return s.conn.Delete(path, version)
}

// Release ends a grant or closes its name for a time: see store.Store.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	_, err := do(ctx, s, func() (struct{}, error) {
		free, err := s.hold(ctx, key{name, id})
		if err != nil {
			return struct{}{}, err
		}
		defer free()
		c, err := s.find(name, id)
		switch {
		case err != nil:
			return struct{}{}, err
		case c == nil || !c.rec.granted:
			return struct{}{}, store.ErrNotHeld
		case keep.State != store.Held:
			err = s.keep(c, keep)
		default:
			err = s.remove(c)
		}
		if errors.Is(err, zk.ErrNoNode) {
			s.forget(c)
			err = store.ErrNotHeld
		}
		return struct{}{}, err
	})
	return err
}

// keep puts a kept record in the place of a grant: a node that no session owns, with the
// time after which it counts no more.
func (s *Store) keep(c *claim, keep store.Keep) error {
	if keep.State == store.Done && c.rec.mode != store.Exclusive {
		return fmt.Errorf("%w: keep as done: the grant is %s; only an exclusive one can close its name as done", store.ErrInvalid, c.rec.mode)
	}
	rec := c.rec
	rec.granted, rec.state, rec.ttl, rec.since = true, keep.State, keep.For, 0
	kept := &claim{key: c.key, parent: c.parent, node: "k" + c.node, rec: rec, crowd: c.crowd, kept: true, index: -1}
	if keep.State == store.Done {
		kept.node = doneNode
	}
	ops := []any{
		&zk.DeleteRequest{Path: c.path(), Version: -1},
		&zk.CreateRequest{Path: kept.path(), Acl: s.acl, Data: rec.encode()},
	}
	if keep.State == store.Done { // every waiter watches the parent
		ops = append(ops, &zk.SetDataRequest{Path: c.parent, Version: -1})
	}
	if _, err := s.conn.Multi(ops...); err != nil {
		return err
	}
	s.forget(c)
	kept.end = time.Now().Add(keep.For)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeper.put(kept)
	s.keeper.sweep.due += sweepShare
	return nil
}

// find returns the claim of an identity, taking over what another session has of it.
func (s *Store) find(name string, id store.ID) (*claim, error) {
	if c := s.claimOf(key{name, id}); c != nil {
		return c, nil
	}
	q, err := s.look(name)
	if err != nil || q == nil {
		return nil, err
	}
	i := q.find(id)
	if i < 0 || q.nodes[i].kept && q.nodes[i].rec.state != store.Held {
		return nil, nil
	}
	return s.takeOver(name, q, i)
}

// takeOver makes a node of another session one of this session, in the same place: a grant
// that was made through another handle, or what is left of a session that has ended, which is
// dying and must not be relied on. It is nil if the node is gone.
func (s *Store) takeOver(name string, q *queue, i int) (*claim, error) {
	n := &q.nodes[i]
	path := q.parent + "/" + n.name
	data, stat, err := s.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec, err := parseRecord(data, stat)
	if err != nil {
		return nil, err
	}
	c := &claim{key: key{name, n.id}, parent: q.parent, node: n.name, rec: *rec, crowd: len(q.nodes) > 1, index: -1}
	if !rec.granted {
		c.rec.token, c.rec.tokens, c.rec.since = 0, 0, 0
	}
	c.rec.state = store.Held
	c.end = time.Now().Add(s.patience(&c.rec))
	session := s.currentSession()
	if stat.EphemeralOwner == session {
		s.changed(c, stat)
		return c, s.adopt(c, session)
	}
	if n.kept {
		c.node = n.name[1:]
	}
	results, err := s.conn.Multi(
		&zk.DeleteRequest{Path: path, Version: stat.Version},
		&zk.CreateRequest{Path: c.path(), Acl: s.acl, Flags: zk.FlagEphemeral},
		&zk.SetDataRequest{Path: c.path(), Data: c.rec.encode(), Version: 0},
	)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.changed(c, results[2].Stat)
	return c, s.adopt(c, results[2].Stat.EphemeralOwner)
}

// patience is how long a claim lives without a word of its owner.
func (s *Store) patience(r *record) time.Duration {
	if r.granted {
		return r.ttl
	}
	return s.heartbeat
}

// Break ends a grant or a closure by force: see store.Store.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	_, err := do(ctx, s, func() (struct{}, error) {
		q, err := s.look(name)
		if err != nil {
			return struct{}{}, err
		}
		if q == nil {
			return struct{}{}, store.ErrNotHeld
		}
		i := q.find(id)
		if i < 0 {
			return struct{}{}, store.ErrNotHeld
		}
		n := &q.nodes[i]
		if !n.kept {
			rec, _, err := s.read(q, n)
			if err != nil {
				return struct{}{}, err
			}
			if rec == nil || !rec.granted {
				return struct{}{}, store.ErrNotHeld
			}
		}
		err = s.removeNode(q.parent, n.name, anyVersion, len(q.nodes) > 1)
		if errors.Is(err, zk.ErrNoNode) {
			err = store.ErrNotHeld
		}
		return struct{}{}, err
	})
	return err
}

// closeLimit bounds what Close does at the servers.
const closeLimit = 2 * time.Second

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
