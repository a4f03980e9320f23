package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// Acquire makes one attempt to take a name: see store.Store. Asking again under the identity
// of a live grant or waiter in another mode, weight or limit is an ErrInvalid. The TTL as
// granted is at most four fifths of the session's timeout.
func (s *Store) Acquire(ctx context.Context, req store.Request) (answer store.Answer, err error) {
	if req.Floor >= store.MaxToken {
		return answer, tokensOver(req.Floor)
	}
	if err := s.usable(ctx); err != nil {
		return answer, err
	}
	req.TTL = s.ttl(req.TTL)
	req.Tokens = min(max(req.Tokens, 1), block)
	for range looks {
		var ok bool
		if !s.signOfLife(key{req.Name, req.ID}) {
			answer, ok, err = s.takeFree(ctx, &req)
		}
		if !ok && err == nil {
			answer, ok, err = s.stand(ctx, &req)
		}
		if ok && s.life.Err() != nil {
			return store.Answer{}, errClosed // Close may have ended the session before it knew of the grant
		}
		if ok || err != nil {
			answer.TTL = s.ttl(answer.TTL) // the session may have been resumed with a shorter timeout
			return answer, s.explain(err)
		}
	}
	return answer, errCrowd
}

// signOfLife keeps a waiter in its place, however long the servers take to answer it. It is
// false if this handle has nothing of that identity.
func (s *Store) signOfLife(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[k]
	if c != nil && !c.rec.granted {
		s.arm(c, s.heartbeat)
	}
	return c != nil
}

// takeFree takes a name that nobody uses. One transaction makes its parent and the node, so
// nobody can be in front of it. It is not ok if the parent exists.
func (s *Store) takeFree(ctx context.Context, req *store.Request) (answer store.Answer, ok bool, err error) {
	parent, bucket := s.place(req.Name)
	c := &claim{key: key{req.Name, req.ID}, parent: parent, node: requestNode(req) + firstSeq, rec: recordOf(req)}
	c.rec.granted = true
	w := &write{ctx: ctx, name: req.Name, ops: []wire.Op{
		wire.Create(c.parent, nil, s.acl, wire.Container),
		wire.Create(c.path(), c.rec.encode(), s.acl, wire.Ephemeral),
	}}
	w.then = func(parts []wire.Result, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch err {
		case nil:
			c.rec.since, c.since = parts[0].Stat.Mtime, time.Now()
			s.adopt(c, &parts[0].Stat) // of the parent, which was made by the same change
		case wire.ErrUnknown:
			s.suspect(c.key, req.TTL)
		}
	}
	err = s.write(w)
	if err == wire.ErrNoNode {
		if err = s.ensure(ctx, bucket); err == nil {
			err = s.write(w)
		}
	}
	if err == wire.ErrNodeExists || err == wire.ErrNoNode { // the servers may remove the bucket again at once
		return answer, false, nil
	}
	if err == nil {
		answer, err = s.granted(ctx, c, 0)
	}
	return answer, err == nil, err
}

// granted answers a request that was granted.
func (s *Store) granted(ctx context.Context, c *claim, waiters int) (store.Answer, error) {
	if err := s.settle(ctx, c); err != nil {
		if errors.Is(err, store.ErrInvalid) {
			err = errors.Join(err, s.undo(ctx, c))
		}
		return store.Answer{}, err
	}
	rec, _ := s.state(c)
	return store.Answer{Token: rec.token, Tokens: rec.tokens, TTL: rec.ttl, Waiters: waiters}, nil
}

// grant makes a waiter at place i a holder, or lets the TTL of a holder start anew. A majority
// agrees on the write, in this session: what is read from one server may be old, and the
// session over.
func (s *Store) grant(ctx context.Context, c *claim, rec record, q *queue, i int) (answer store.Answer, ok bool, err error) {
	rec.granted = true
	if ok, err = s.save(ctx, c, rec); !ok || err != nil {
		return answer, false, err
	}
	holders := i + 1
	if rec.token != 0 && rec.mode != store.Exclusive { // others may hold it behind this one
		if holders, _, err = s.holders(ctx, q, 1); err != nil {
			return answer, false, err
		}
	}
	answer, err = s.granted(ctx, c, q.waiters(holders, i))
	return answer, err == nil, err
}

// save writes a claim's record. It is not ok, and the claim is forgotten, if the node is not
// there as it is known. Other requests can be sent behind the write.
func (s *Store) save(ctx context.Context, c *claim, rec record, behind ...*wire.Call) (ok bool, err error) {
	s.mu.Lock()
	op := wire.Set(c.path(), rec.encode(), c.version)
	s.mu.Unlock()
	ours := false
	set := &wire.Call{Op: op, Then: func(set *wire.Call) { ours = set.Err == nil && s.written(c, rec, &set.Stat) }}
	if err := s.wire.Do(ctx, append([]*wire.Call{set}, behind...)...); err != nil && err == ctx.Err() {
		return false, err
	}
	switch {
	case set.Err == wire.ErrNoNode || set.Err == wire.ErrBadVersion:
		s.forget(c)
		return false, nil
	case set.Err == nil && !ours:
		return false, errLost
	}
	return set.Err == nil, set.Err
}

// written notes the record of a grant that was written. It is false if the node belongs to
// another session.
func (s *Store) written(c *claim, rec record, stat *wire.Stat) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if stat.EphemeralOwner != s.session {
		s.forgetLocked(c)
		return false
	}
	if rec.since == 0 {
		rec.since, c.since = stat.Mtime, time.Now()
	}
	c.rec = rec
	if other := s.claims[c.key]; other == nil || other == c { // nil: its end came too late
		s.adopt(c, stat)
	}
	return true
}

// ensure makes a node and those above it, if they are not there. They are containers: the
// servers remove them when they are empty.
func (s *Store) ensure(ctx context.Context, path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		err := s.wire.Do(ctx, &wire.Call{Op: wire.Create(path[:i], nil, s.acl, wire.Container)})
		if err == wire.ErrNoAuth && i < len(path) { // it may exist without being ours
			err = s.wire.Do(ctx, &wire.Call{Op: wire.Exists(path[:i], false)})
		}
		if err != nil && err != wire.ErrNodeExists {
			return err
		}
	}
	return nil
}
