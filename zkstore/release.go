package zkstore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// brief is how long a lock is held that most likely has no waiters.
const brief = time.Millisecond

// Leave takes an identity out of the queue and gives back its grant: see store.Store. The
// servers keep the order of a session's requests, so it also finds a request that was sent just
// before and whose reply nobody waited for.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	k := key{name, id}
	if c := s.claimOf(k); c != nil {
		err := s.remove(ctx, c)
		if ignoreNoNode(err) != nil || err == nil && !s.isSuspect(k) {
			return s.explain(err)
		}
	}
	q, err := s.look(ctx, name)
	if err != nil || q == nil {
		return s.explain(err)
	}
	for _, n := range q.nodes {
		if n.id == id && (!n.kept || n.rec.state == store.Held) {
			if err := s.removeNode(ctx, q.parent, n.name, wire.AnyVersion, len(q.nodes) > 1); ignoreNoNode(err) != nil {
				return s.explain(err)
			}
		}
	}
	if c := s.claimOf(k); c != nil {
		s.forget(c)
	}
	return nil
}

// remove deletes the node of a claim, and its parent: a name that nobody uses leaves nothing.
// In one transaction that is cheaper, but it fails if there are waiters, who then have to wait
// for a second attempt. So it is for locks that were held briefly.
func (s *Store) remove(ctx context.Context, c *claim) error {
	s.mu.Lock()
	crowd := c.crowd
	together := !crowd && time.Since(c.since) <= brief
	s.mu.Unlock()
	w := &write{ctx: ctx, name: c.name, ops: []wire.Op{wire.Delete(c.path(), wire.AnyVersion)}}
	w.then = func(_ []wire.Result, err error) {
		if ignoreNoNode(err) == nil {
			s.forget(c)
		}
	}
	if together {
		w.ops = append(w.ops, wire.Delete(c.parent, wire.AnyVersion))
		if err := s.write(w); err != wire.ErrNotEmpty {
			return err
		}
		w.ops, crowd = w.ops[:1], true
	}
	err := s.write(w)
	if err == nil && !crowd {
		s.removeEmpty(c.parent)
	}
	return err
}

// removeEmpty removes the parent of a name that may be unused, and does not wait for it. It
// fails if the name is in use.
func (s *Store) removeEmpty(parent string) {
	s.wire.Send(&wire.Call{Op: wire.Delete(parent, wire.AnyVersion)})
}

// removeNode deletes a node, and its parent if it is the last. The path has the identity in
// it, so that no other request can be hit.
func (s *Store) removeNode(ctx context.Context, parent, node string, version int32, crowd bool) error {
	remove := wire.Delete(parent+"/"+node, version)
	if !crowd {
		err := s.wire.Do(ctx, &wire.Call{Op: wire.Multi(remove, wire.Delete(parent, wire.AnyVersion))})
		if err != wire.ErrNotEmpty {
			return err
		}
	}
	return s.wire.Do(ctx, &wire.Call{Op: remove})
}

// Release ends a grant or closes its name for a time: see store.Store.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	if err := s.usable(ctx); err != nil {
		return err
	}
	c, err := s.find(ctx, name, id)
	switch {
	case err != nil:
		return s.explain(err)
	case c == nil:
		return store.ErrNotHeld
	case keep.State != store.Held:
		err = s.keep(ctx, c, keep)
	default:
		err = s.remove(ctx, c)
	}
	if err == wire.ErrNoNode {
		s.forget(c)
		return store.ErrNotHeld
	}
	return s.explain(err)
}

// keep puts a kept record in the place of a grant: a node that no session owns, with the
// time after which it counts no more.
func (s *Store) keep(ctx context.Context, c *claim, keep store.Keep) error {
	rec, _ := s.state(c)
	if keep.State == store.Done && rec.mode != store.Exclusive {
		return fmt.Errorf("%w: keep as done: the grant is %s; only an exclusive one can close its name as done", store.ErrInvalid, rec.mode)
	}
	rec.state, rec.ttl, rec.since = keep.State, keep.For, 0
	kept := &claim{key: c.key, parent: c.parent, node: "k" + c.node, kept: true}
	if keep.State == store.Done {
		kept.node = doneNode
	}
	ops := []wire.Op{
		wire.Delete(c.path(), wire.AnyVersion),
		wire.Create(kept.path(), rec.encode(), s.acl, wire.Persistent),
	}
	if keep.State == store.Done { // every waiter watches the parent
		ops = append(ops, wire.Set(c.parent, nil, wire.AnyVersion))
	}
	return s.wire.Do(ctx, &wire.Call{Op: wire.Multi(ops...), Then: func(call *wire.Call) {
		if call.Err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.forgetLocked(c)
			s.kept[kept.key] = kept
			s.arm(kept, keep.For)
			s.sweepSome()
		}
	}})
}

// locate reads the node of an identity at a name. Its record is nil if there is none.
func (s *Store) locate(ctx context.Context, name string, id store.ID) (q *queue, i int, r standing, err error) {
	if q, err = s.look(ctx, name); err != nil || q == nil {
		return q, 0, r, err
	}
	if i = q.find(id); i < 0 {
		return q, i, r, nil
	}
	recs, err := s.read(ctx, q, q.nodes[i])
	if err == nil {
		r = recs[0]
	}
	return q, i, r, err
}

// find returns the claim of a grant, taking over what another session has of it. It is nil if
// there is none.
func (s *Store) find(ctx context.Context, name string, id store.ID) (*claim, error) {
	for range looks { // another call under the same identity may write it meanwhile
		if c := s.claimOf(key{name, id}); c != nil {
			if rec, _ := s.state(c); !rec.granted {
				return nil, nil
			}
			return c, nil
		}
		q, i, r, err := s.locate(ctx, name, id)
		if err != nil || r.record == nil || !r.granted || r.state != store.Held {
			return nil, err
		}
		if c, err := s.takeOver(ctx, name, q, i, r); c != nil || err != nil {
			return c, err
		}
	}
	return nil, errCrowd
}

// takeOver replaces the node at place i, in the same place, by one that this session has made: a
// node of another handle, or of a session that has ended, which is dying and must not be relied
// on; or one whose reply was lost. It is nil if the node is gone or was written meanwhile.
func (s *Store) takeOver(ctx context.Context, name string, q *queue, i int, r standing) (*claim, error) {
	n := &q.nodes[i]
	c := &claim{key: key{name, n.id}, parent: q.parent, node: n.name, rec: *r.record, crowd: len(q.nodes) > 1}
	if !c.rec.granted {
		c.rec.since = 0
	}
	c.rec.state = store.Held
	if n.kept {
		c.node = n.name[1:]
	}
	err := s.wire.Do(ctx, &wire.Call{
		Op: wire.Multi(
			wire.Delete(q.parent+"/"+n.name, r.stat.Version),
			wire.Create(c.path(), nil, s.acl, wire.Ephemeral),
			wire.Set(c.path(), c.rec.encode(), 0), // so that its version differs from a new node's
		),
		Then: func(call *wire.Call) {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch call.Err {
			case nil:
				s.adopt(c, &call.Parts[2].Stat)
			case wire.ErrUnknown:
				s.suspect(c.key, s.lifeOf(c))
			}
		},
	})
	if err == wire.ErrNoNode || err == wire.ErrBadVersion {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Break ends a grant or a closure by force: see store.Store.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	q, i, r, err := s.locate(ctx, name, id)
	if err == nil && (r.record == nil || !r.granted) {
		return store.ErrNotHeld
	}
	if err == nil {
		err = s.removeNode(ctx, q.parent, q.nodes[i].name, wire.AnyVersion, len(q.nodes) > 1)
	}
	if err == wire.ErrNoNode {
		return store.ErrNotHeld
	}
	return s.explain(err)
}
