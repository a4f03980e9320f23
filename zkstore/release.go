package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const brief = time.Millisecond // a lock that was held for a shorter time most likely has no waiters

// Leave removes an identity from the queue and releases its grant; see [store.Store]. The servers keep the order of
// a session's requests, so Leave also finds a request that was sent just before it and is still in flight.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	k := wake.Key{Name: name, ID: id}
	if c := s.claimOf(k); c != nil {
		err := s.remove(ctx, c, wire.AnyVersion)
		s.mu.Lock()
		suspect := s.kept[k] != nil
		s.mu.Unlock()
		if ignoreNoNode(err) != nil || err == nil && !suspect {
			return s.explain(err)
		}
	}
	parent, _ := s.place(name)
	q, err := s.look(ctx, parent, &wire.Call{Op: wire.Sync(parent)})
	if err != nil {
		return s.explain(err)
	}
	for i, n := range q.nodes {
		if n.id == id && (!n.kept || n.rec.state == store.Held) {
			if err := s.undo(ctx, q.claim(k, i)); err != nil {
				return s.explain(err)
			}
		}
	}
	if c := s.claimOf(k); c != nil {
		s.forget(c)
	}
	return nil
}

// remove deletes the node of a claim, and its parent if the name is no longer in use. One transaction for both
// is cheaper. But it fails if there are waiters, which then have to wait for a second attempt. So it is used
// for locks that were held briefly. The path contains the identity, so no other request can be affected.
func (s *Store) remove(ctx context.Context, c *claim, version int32) error {
	s.mu.Lock()
	crowd := c.crowd
	together := !crowd && time.Since(c.since) <= brief
	s.mu.Unlock()
	w := &write{ctx: ctx, name: c.Name, ops: []wire.Op{wire.Delete(c.path(), version)}}
	w.then = func(_ []wire.Result, err error) error {
		if ignoreNoNode(err) == nil {
			s.forget(c)
		}
		return err
	}
	if together {
		w.ops = append(w.ops, wire.Delete(c.parent, wire.AnyVersion))
		if err := s.write(w); err != wire.ErrNotEmpty {
			return err
		}
		w.ops, crowd = w.ops[:1], true
	}
	err := s.write(w)
	if err == nil && !crowd { // refused if the name is in use
		s.wire.Send(&wire.Call{Op: wire.Delete(c.parent, wire.AnyVersion)})
	}
	return err
}

// undo removes the node of a request, if it is still there.
func (s *Store) undo(ctx context.Context, c *claim) error {
	return ignoreNoNode(s.remove(ctx, c, wire.AnyVersion))
}

// undoInvalid removes the node of a request, if there is one, that can never be granted for the reason in err.
func (s *Store) undoInvalid(ctx context.Context, c *claim, err error) error {
	if c != nil && errors.Is(err, store.ErrInvalid) {
		return errors.Join(err, s.undo(ctx, c))
	}
	return err
}

// Release ends a grant, or keeps its name closed for a time; see [store.Store].
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	c, err := s.find(ctx, wake.Key{Name: name, ID: id})
	switch {
	case err != nil:
		return s.explain(err)
	case c == nil:
		return store.ErrNotHeld
	case keep.State != store.Held:
		err = s.keep(ctx, c, keep)
	default:
		err = s.remove(ctx, c, wire.AnyVersion)
	}
	if err == wire.ErrNoNode && s.life.Closing.Err() == nil { // otherwise Close may have replaced the node
		s.forget(c)
		return store.ErrNotHeld
	}
	return s.explain(err)
}

// keep replaces a grant by a kept record: a node that belongs to no session and contains the time for which
// it counts. Its name contains the identity, so that removing it late cannot affect a newer record.
func (s *Store) keep(ctx context.Context, c *claim, keep store.Keep) error {
	rec, _ := s.state(c)
	if err := store.CheckDone(keep, rec.Mode); err != nil {
		return err
	}
	rec.state, rec.TTL, rec.since = keep.State, keep.For, 0
	kept := &claim{Key: c.Key, parent: c.parent, node: "k" + c.node, kept: true}
	ops := []wire.Op{wire.Delete(c.path(), wire.AnyVersion)}
	if keep.State == store.Done { // every waiter watches the parent
		ops = append(ops, wire.Set(c.parent, nil, wire.AnyVersion))
	}
	ops = append(ops, wire.Create(kept.path(), rec.encode(), s.acl, wire.Persistent))
	return s.wire.Do(ctx, &wire.Call{Op: wire.Multi(ops...), Then: func(call *wire.Call) {
		if call.Err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.forgetLocked(c)
			s.kept[kept.Key] = kept
			s.arm(kept, keep.For)
			s.sweepSome()
		}
	}})
}

// locate reads the node of an identity. The record is nil if there is none.
func (s *Store) locate(ctx context.Context, k wake.Key) (q *queue, i int, r standing, err error) {
	parent, _ := s.place(k.Name)
	if q, err = s.look(ctx, parent, &wire.Call{Op: wire.Sync(parent)}); err != nil {
		return q, 0, r, err
	}
	if i = q.find(k.ID); i < 0 {
		return q, i, r, q.unknown // which may be this one
	}
	recs, err := s.read(ctx, q, q.nodes[i])
	if err == nil {
		r = recs[0]
	}
	return q, i, r, err
}

// find returns the claim of a grant, or nil if there is none. It takes over a node of another session.
func (s *Store) find(ctx context.Context, k wake.Key) (c *claim, err error) {
	err = again(func() error { // another call under the same identity may write the node
		if c = s.claimOf(k); c != nil {
			if rec, _ := s.state(c); !rec.granted {
				c = nil
			}
			return nil
		}
		q, i, r, err := s.locate(ctx, k)
		if err == nil && r.record != nil && r.granted && r.state == store.Held {
			c, err = s.takeOver(ctx, k, q, i, r)
		}
		return err
	})
	return c, err
}

// takeOver replaces the node at place i by one of this session, in the same place. The node belongs to
// another handle, or to a session that has ended, or the reply to its creation was lost. It returns
// errChanged if the node is gone or was written meanwhile.
func (s *Store) takeOver(ctx context.Context, k wake.Key, q *queue, i int, r standing) (*claim, error) {
	if r.record == nil {
		return nil, errChanged
	}
	c := q.claim(k, i)
	old := c.path()
	c.rec, c.since = *r.record, time.Time{}
	if !c.rec.granted {
		c.rec.since = 0
	}
	c.rec.state = store.Held
	if q.nodes[i].kept {
		c.node = c.node[1:]
	}
	replace := wire.Multi(
		wire.Delete(old, r.stat.Version),
		wire.Create(c.path(), nil, s.acl, wire.Ephemeral),
		wire.Set(c.path(), c.rec.encode(), 0)) // so that its version differs from that of a new node
	err := s.wire.Do(ctx, &wire.Call{Op: replace, Then: func(call *wire.Call) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if call.Err == nil {
			s.adopt(c, &call.Parts[2].Stat)
		}
		s.suspect(c, call.Err)
	}})
	if err == wire.ErrNoNode || err == wire.ErrBadVersion {
		err = errChanged
	}
	return c, err
}

// Break ends a grant or a kept record by force; see [store.Store].
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	k := wake.Key{Name: name, ID: id}
	q, i, r, err := s.locate(ctx, k)
	if err == nil && r.record != nil && r.granted {
		err = s.remove(ctx, q.claim(k, i), wire.AnyVersion)
	} else if err == nil {
		err = wire.ErrNoNode
	}
	if err == wire.ErrNoNode {
		return store.ErrNotHeld
	}
	return s.explain(err)
}
