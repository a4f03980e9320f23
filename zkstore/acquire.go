package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

// Acquire makes one attempt to take a name: see store.Store. Asking again under the identity
// of a live grant or waiter in another mode, weight or limit is an ErrInvalid. The TTL as
// granted is at most four fifths of the session's timeout.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if req.Floor >= store.MaxToken {
		return store.Answer{}, tokensOver(req.Floor)
	}
	if err := s.usable(ctx); err != nil {
		return store.Answer{}, err
	}
	req.TTL = s.ttl(req.TTL)
	req.Tokens = min(max(req.Tokens, 1), maxBlock)
	answer, done, crowded, err := s.takeDirect(ctx, &req)
	if done || err != nil {
		return answer, err
	}
	return do(ctx, s, func() (store.Answer, error) {
		free, err := s.hold(ctx, key{req.Name, req.ID})
		if err != nil {
			return store.Answer{}, err
		}
		defer free()
		return s.acquire(ctx, &req, crowded)
	})
}

func (s *Store) ttl(asked time.Duration) time.Duration {
	return min(asked, s.maxTTL()).Truncate(time.Millisecond)
}

// acquire takes a name, or waits for it. If it is known to be crowded that is not tried for
// free.
func (s *Store) acquire(ctx context.Context, req *store.Request, crowded bool) (store.Answer, error) {
	for i := range looks {
		if err := s.usable(ctx); err != nil {
			return store.Answer{}, err
		}
		if !s.signOfLife(key{req.Name, req.ID}) && !(crowded && i == 0) {
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
	c, bucket := s.newClaim(req, added)
	ops := []any{
		&zk.CreateRequest{Path: c.parent, Acl: s.acl, Flags: zk.FlagContainer},
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

// newClaim is that of a request which is granted as the first, and the bucket of its name.
func (s *Store) newClaim(req *store.Request, added base) (c *claim, bucket string) {
	parent, bucket := s.place(req.Name)
	c = &claim{key: key{req.Name, req.ID}, parent: parent, node: requestNode(req) + firstSeq, rec: recordOf(req), index: -1}
	c.rec.granted, c.rec.base = true, added.value
	return c, bucket
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
