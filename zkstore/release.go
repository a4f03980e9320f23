package zkstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

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
	if err := s.usable(ctx); err != nil {
		return err
	}
	if keep.State == store.Held {
		if done, err := s.releaseDirect(ctx, key{name, id}); done {
			return err
		}
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
