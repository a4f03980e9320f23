package zkstore

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	retryAfter = time.Second // when to retry after a failed attempt to remove a node

	// For each record that a release keeps, sweepShare names are listed. It is more than one, so that
	// records of processes that ended are removed faster than new records are made.
	sweepShare = 2
	sweepBatch = 64
)

// arm sets the time at which a claim ends unless it is renewed or asked for again. The session does not end
// it, because other claims keep the session alive. The caller holds the mutex.
func (s *Store) arm(c *claim, after time.Duration) {
	c.end = time.Now().Add(after)
	if c.timer == nil {
		c.timer = time.AfterFunc(after, func() { s.expire(c) })
	} else {
		c.timer.Reset(after)
	}
}

// expire removes a claim whose time is over.
func (s *Store) expire(c *claim) {
	if !s.life.Enter() {
		return
	}
	defer s.life.Exit()
	s.mu.Lock()
	over := !time.Now().Before(c.end) && (s.claims[c.Key] == c || s.kept[c.Key] == c)
	version := c.version
	s.mu.Unlock()
	if !over {
		return
	}
	ctx, cancel := context.WithTimeout(s.life.Closing, requestLimit)
	defer cancel()
	var err error
	if c.kept || c.node == "" {
		err = s.removeLeft(ctx, c)
	} else {
		err = s.removeExpired(ctx, c, version)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ignoreNoNode(err) == nil {
		s.forgetLocked(c)
	} else if !time.Now().Before(c.end) {
		s.arm(c, retryAfter)
	}
}

// suspect is called with the error of a request that creates a node, and returns it. If the reply was lost, the node
// may exist. Unless the request is repeated, it is removed when it would have expired. The caller holds the mutex.
func (s *Store) suspect(c *claim, err error) error {
	if err == wire.ErrUnknown {
		kept := cmp.Or(s.kept[c.Key], &claim{Key: c.Key})
		if s.kept[c.Key] = kept; kept.node == "" {
			s.arm(kept, s.lifeOf(c))
		}
	}
	return err
}

// removeLeft removes a kept record whose time is over by the clock of the servers, or a node of the session that
// this handle does not know of. It returns an error until there are no more such nodes.
func (s *Store) removeLeft(ctx context.Context, c *claim) error {
	q, i, r, err := s.locate(ctx, c.Key) // which removes the record
	s.mu.Lock()
	other := s.claims[c.Key] != nil || r.stat.EphemeralOwner != s.session
	s.mu.Unlock()
	switch {
	case err != nil || r.record == nil:
		return err
	case c.kept && r.state != store.Held:
		return errChanged
	case other:
		return nil
	}
	return changed(s.remove(ctx, q.claim(c.Key, i), r.stat.Version))
}

// removeExpired removes the node of a claim. If it was written since, by a renewal that is in flight or whose
// reply was lost, it lives for another TTL and the error is errChanged.
func (s *Store) removeExpired(ctx context.Context, c *claim, version int32) error {
	exists := &wire.Call{Op: wire.Exists(c.path(), false)}
	if err := s.wire.Do(ctx, exists); err != nil {
		return err
	}
	s.mu.Lock()
	ours, renewed := exists.Stat.EphemeralOwner == s.session, exists.Stat.Version != version
	if ours && renewed && s.claims[c.Key] == c {
		c.version, c.zxid = exists.Stat.Version, exists.Stat.Mzxid
		s.arm(c, s.lifeOf(c))
	}
	s.mu.Unlock()
	switch {
	case !ours: // another handle has taken it over
		return nil
	case renewed:
		return errChanged
	}
	return s.remove(ctx, c, version)
}

// A sweep lists all names repeatedly, a page at a time. Listing removes kept records whose time is over,
// including those of clients that are gone.
type sweep struct {
	due    int    // names to list
	cursor string // of the next page
	busy   bool
}

// sweepSome is called for every kept record, with the mutex held.
func (s *Store) sweepSome() {
	if s.sweep.due += sweepShare; s.sweep.due < sweepBatch || s.sweep.busy || !s.life.Enter() {
		return
	}
	defer s.life.Exit()
	s.sweep.due, s.sweep.busy = s.sweep.due-sweepBatch, true
	q := store.Query{Cursor: s.sweep.cursor, Limit: sweepBatch}
	s.life.Go(func(context.Context) {
		ctx, cancel := context.WithTimeout(s.life.Closing, requestLimit)
		defer cancel()
		page, _ := s.listAll(ctx, &q) // the listing continues after a name that cannot be listed
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sweep.cursor, s.sweep.busy = page.Next, false
	})
}
