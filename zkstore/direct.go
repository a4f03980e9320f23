package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

// The usual requests, of names that nobody else wants, go to the server by the link itself and
// not by the library: no goroutine for each, and nothing packed by reflection. Whatever else
// comes up is for the others to deal with: then nothing is done here, or what was done is
// finished by them.

// start makes an identity busy, if it is not, and returns the link that is there, and the
// claim. Free must follow if it is ok.
func (s *Store) start(k key) (l *link, c *claim, b base, free func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == nil || s.busy[k] != nil || s.link.session != s.session || !s.base.known {
		return nil, nil, b, nil, false
	}
	return s.link, s.mine[k], s.base, s.occupy(k), true
}

// await waits for a reply. If the caller stops waiting, finish is called in its place when the
// reply comes, or the connection ends.
func (s *Store) await(ctx context.Context, l *link, asked *job, finish func(reply)) (r reply, err error) {
	sent := time.Now()
	select {
	case r = <-asked.replies:
		return r, nil
	case <-ctx.Done():
		err = ctx.Err()
		if time.Since(sent) > s.silence() {
			s.dialer.drop() // another server may answer
		}
	case <-s.done:
		err = errClosed
	}
	l.giveUp(asked)
	go func() { finish(<-asked.replies) }()
	return r, err
}

// takeDirect is takeFree. It is not done if that is not possible, and the name is crowded if
// others use it.
func (s *Store) takeDirect(ctx context.Context, req *store.Request) (answer store.Answer, done, crowded bool, err error) {
	l, c, added, free, ok := s.start(key{req.Name, req.ID})
	if !ok {
		return answer, false, false, nil
	}
	if c != nil {
		free()
		return answer, false, false, nil
	}
	c, _ = s.newClaim(req, added)
	p := newPacket(opMulti).
		part(opCreate).create(c.parent, nil, s.acl, zk.FlagContainer).
		part(opCreate).create(c.path(), c.rec.encode(), s.acl, zk.FlagEphemeral)
	asked := &job{parts: p[sizeRequest:], alone: p.end()}
	if !l.ask(asked) {
		free()
		return answer, false, false, nil
	}
	adopt := func(r reply) error {
		if r.err != nil {
			return r.err
		}
		s.changed(c, &zk.Stat{Mzxid: r.zxid, Mtime: r.at})
		c.since = time.Now()
		c.end = c.since.Add(req.TTL)
		return s.adopt(c, l.session)
	}
	r, err := s.await(ctx, l, asked, func(r reply) {
		adopt(r)
		free()
	})
	if err != nil {
		return answer, true, false, err
	}
	if err = adopt(r); err == nil {
		if answer, ok = s.plain(c, req, added); ok {
			free()
			return answer, true, false, nil
		}
		answer, err = do(ctx, s, func() (store.Answer, error) {
			defer free()
			return s.granted(c, req, added, 0)
		})
		return answer, true, false, err
	}
	free()
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return answer, false, true, nil
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, errLost):
		return answer, true, false, s.explain(err)
	}
	return answer, false, false, nil // the library has a word for it, or knows what to do
}

// plain is granted for who needs nothing but the number of the change, if no other base came
// in between.
func (s *Store) plain(c *claim, req *store.Request, added base) (store.Answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.base
	if req.Tokens > 1 || c.rec.token <= req.Floor || !now.known || now.value != added.value || c.rec.token > store.MaxToken {
		return store.Answer{}, false
	}
	return store.Answer{Token: c.rec.token, Tokens: c.rec.tokens, TTL: c.rec.ttl}, true
}

// releaseDirect ends a grant. It is not done if that is not possible.
//
// The parent goes behind the node, and nobody waits for that. Only if there is much to do it
// goes in the same transaction, which then fails if anybody waits for the lock, and would have
// to be repeated: so that is for locks that were held briefly.
func (s *Store) releaseDirect(ctx context.Context, k key) (done bool, err error) {
	l, c, _, free, ok := s.start(k)
	if !ok {
		return false, nil
	}
	if c == nil || !c.rec.granted {
		free()
		return false, nil
	}
	p := newPacket(opMulti).part(opDelete).delete(c.path(), anyVersion)
	asked := &job{alone: newPacket(opDelete).delete(c.path(), anyVersion)}
	if !c.crowd {
		asked.behind = newPacket(opDelete).delete(c.parent, anyVersion)
		if asked.whole = time.Since(c.since) <= brief; asked.whole {
			p = p.part(opDelete).delete(c.parent, anyVersion)
		}
	}
	asked.parts = p[sizeRequest:]
	if !l.ask(asked) {
		free()
		return false, nil
	}
	end := func(r reply) {
		if r.err == nil || errors.Is(r.err, zk.ErrNoNode) {
			s.forget(c)
		}
		if errors.Is(r.err, zk.ErrNotEmpty) {
			s.mu.Lock()
			c.crowd = true
			s.mu.Unlock()
		}
		free()
	}
	r, err := s.await(ctx, l, asked, end)
	if err != nil {
		return true, err
	}
	end(r)
	switch {
	case r.err == nil:
		return true, nil
	case errors.Is(r.err, zk.ErrNoNode):
		return true, store.ErrNotHeld
	case errors.Is(r.err, zk.ErrConnectionClosed):
		return true, s.explain(r.err)
	}
	return false, nil
}
