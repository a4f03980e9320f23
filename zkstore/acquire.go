package zkstore

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// Acquire makes one attempt to take a name; see [store.Store], and [store.SameClaim] for a repeated request.
// The granted TTL is at most four fifths of the session's timeout.
func (s *Store) Acquire(ctx context.Context, req store.Request) (answer store.Answer, err error) {
	if req.Floor >= store.MaxToken {
		return answer, store.NoTokens(req.Floor)
	}
	req.TTL = s.ttl(req.TTL)
	req.Tokens = min(max(req.Tokens, 1), block)
	err = again(func() error {
		err := errChanged
		if s.claimOf(wake.Key{Name: req.Name, ID: req.ID}) == nil {
			answer, err = s.takeFree(ctx, &req)
		}
		if err == errChanged {
			answer, err = s.takeQueued(ctx, &req)
		}
		return err
	})
	if err == nil && s.life.Closing.Err() != nil {
		return store.Answer{}, s.life.ErrClosed // Close may have ended the session before it knew of the grant
	}
	answer.TTL = s.ttl(answer.TTL) // the session may have been resumed with a shorter timeout
	return answer, s.explain(err)
}

// takeFree takes a name that is not in use. One transaction creates the parent and the node, so no other
// request can be in front. It returns errChanged if the parent exists.
func (s *Store) takeFree(ctx context.Context, req *store.Request) (answer store.Answer, err error) {
	parent, bucket := s.place(req.Name)
	c := newClaim(req, parent)
	c.node, c.rec.granted = requestNode(req)+firstSeq, true
	w := &write{ctx: ctx, name: req.Name, ops: []wire.Op{
		wire.Create(c.parent, nil, s.acl, wire.Container),
		wire.Create(c.path(), c.rec.encode(), s.acl, wire.Ephemeral),
	}}
	w.then = func(parts []wire.Result, err error) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil { // the same change has created the parent, whose Stat is in the reply
			c.rec.since, c.since = parts[0].Stat.Mtime, time.Now()
			s.adopt(c, &parts[0].Stat)
		}
		return s.suspect(c, err)
	}
	if err = s.write(w); err == wire.ErrNoNode {
		if err = s.ensure(ctx, bucket); err == nil {
			err = s.write(w)
		}
	}
	switch err {
	case nil:
		return s.granted(ctx, c, 0)
	case wire.ErrNodeExists, wire.ErrNoNode: // the servers may remove the new bucket at once
		err = errChanged
	}
	return answer, err
}

func (s *Store) granted(ctx context.Context, c *claim, waiters int) (store.Answer, error) {
	rec, err := s.settle(ctx, c)
	if err != nil {
		return store.Answer{}, s.undoInvalid(ctx, c, err)
	}
	return store.Answer{Token: rec.token, Tokens: rec.Tokens, TTL: rec.TTL, Waiters: waiters}, nil
}

// grant makes the waiter at place i a holder, or restarts the TTL of a holder. It needs a write in this
// session, because a read from one server may be outdated, and the session may have ended.
func (s *Store) grant(ctx context.Context, c *claim, rec record, q *queue, i int) (answer store.Answer, err error) {
	rec.granted = true
	if err = s.write(s.saving(ctx, c, rec)); err != nil {
		return answer, err
	}
	holders := i + 1
	if rec.token != 0 && rec.Mode != store.Exclusive { // there may be holders behind this one
		if holders, _, err = s.holders(ctx, q, 1); err != nil {
			return answer, err
		}
	}
	return s.granted(ctx, c, q.waiters(holders, c.ID))
}

// saving returns a write of the record of a claim. If the node is gone or was changed by another client, the
// claim is forgotten and the outcome is errChanged.
func (s *Store) saving(ctx context.Context, c *claim, rec record) *write {
	s.mu.Lock()
	w := &write{ctx: ctx, name: c.Name, ops: []wire.Op{wire.Set(c.path(), rec.encode(), c.version)}}
	s.mu.Unlock()
	w.then = func(parts []wire.Result, err error) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err == wire.ErrNoNode || err == wire.ErrBadVersion:
			s.forgetLocked(c)
			s.suspect(c, wire.ErrUnknown) // another call may have written the node
			return errChanged
		case err != nil:
			return err
		case parts[0].Stat.EphemeralOwner != s.session: // another handle has taken it over
			s.forgetLocked(c)
			return errChanged
		}
		if rec.since == 0 {
			rec.since, c.since = parts[0].Stat.Mtime, time.Now()
		}
		c.rec = rec
		if other := s.claims[c.Key]; other == nil || other == c { // nil: the claim expired before the reply arrived
			s.adopt(c, &parts[0].Stat)
		}
		return nil
	}
	return w
}

// ensure creates a node and its ancestors, if they do not exist. The servers remove them when they are empty.
func (s *Store) ensure(ctx context.Context, path string) error {
	create := func() error { return s.wire.Do(ctx, &wire.Call{Op: wire.Create(path, nil, s.acl, wire.Container)}) }
	err := create()
	if err == wire.ErrNoNode {
		if err = s.ensure(ctx, path[:strings.LastIndexByte(path, '/')]); err == nil {
			err = create()
		}
	}
	if err == wire.ErrNodeExists {
		return nil
	}
	return err
}
