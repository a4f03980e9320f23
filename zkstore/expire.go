package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	// retryAfter is when a node that could not be removed is tried again.
	retryAfter = time.Second

	// removeLimit bounds one attempt to remove something.
	removeLimit = 5 * time.Second

	// For each record that a release keeps, sweepShare names are looked at: more than one, so
	// that records of processes that are gone are removed faster than new ones come.
	sweepShare = 2
	sweepBatch = 64
)

// arm sets when a claim ends unless it is renewed or asked for again: its session lives on for
// others and does not end it. It needs the mutex.
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
	s.mu.Lock()
	if s.life.Err() != nil || time.Now().Before(c.end) || s.claims[c.key] != c && s.kept[c.key] != c {
		s.mu.Unlock()
		return
	}
	version, crowd := c.version, c.crowd
	s.background.Add(1)
	s.mu.Unlock()
	defer s.background.Done()
	ctx, cancel := context.WithTimeout(s.life, removeLimit)
	defer cancel()
	var done bool
	var err error
	switch {
	case c.node == "":
		done, err = s.removeSuspect(ctx, c.key)
	case c.kept:
		done, err = s.removeKept(ctx, c)
	default:
		done, err = s.removeExpired(ctx, c, version, crowd)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case done:
		s.forgetLocked(c)
	case err != nil && !time.Now().Before(c.end):
		s.arm(c, retryAfter)
	}
}

// suspect notes that a request may have made a node, since its reply was lost. If it is not
// asked for again the node is removed when it would have expired. It needs the mutex.
func (s *Store) suspect(k key, after time.Duration) {
	if s.kept[k] == nil {
		s.kept[k] = &claim{key: k}
	}
	if c := s.kept[k]; c.node == "" {
		s.arm(c, after)
	}
}

// isSuspect reports whether an identity may have a node of which this handle does not know.
func (s *Store) isSuspect(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[k] != nil
}

// removeSuspect removes a node that the session has without this handle knowing of it.
func (s *Store) removeSuspect(ctx context.Context, k key) (done bool, err error) {
	q, i, r, err := s.locate(ctx, k.name, k.id)
	if err != nil || r.record == nil {
		return err == nil, err
	}
	s.mu.Lock()
	done = s.claims[k] != nil || r.stat.EphemeralOwner != s.session
	s.mu.Unlock()
	if !done {
		if err = s.removeNode(ctx, q.parent, q.nodes[i].name, r.stat.Version, len(q.nodes) > 1); err == nil {
			err = errCrowd // there may be another one: look again
		}
	}
	return done, err
}

// removeExpired removes the node of a claim. It is not done if the node was written since, by a
// renewal in flight or one whose reply was lost: then it lives once more as long.
func (s *Store) removeExpired(ctx context.Context, c *claim, version int32, crowd bool) (done bool, err error) {
	stat := &wire.Call{Op: wire.Exists(c.path(), false)}
	if err := s.wire.Do(ctx, stat); err != nil {
		return err == wire.ErrNoNode, err
	}
	s.mu.Lock()
	ours := stat.Stat.EphemeralOwner == s.session // else another handle has taken it over
	if renewed := stat.Stat.Version != version; ours && renewed && s.claims[c.key] == c {
		s.adopt(c, &stat.Stat)
	}
	s.mu.Unlock()
	if !ours || stat.Stat.Version != version {
		return !ours, nil
	}
	err = s.removeNode(ctx, c.parent, c.node, version, crowd)
	return err == nil || err == wire.ErrNoNode, err
}

// removeKept removes a record of a release. A look does that if the servers' clock says so.
func (s *Store) removeKept(ctx context.Context, c *claim) (done bool, err error) {
	q, err := s.lookAt(ctx, c.parent)
	if err != nil || q == nil {
		return err == nil, err
	}
	if len(q.nodes) == 0 {
		s.removeEmpty(c.parent)
	} else if i := q.find(c.id); i >= 0 && q.nodes[i].kept {
		return false, errTooEarly
	}
	return true, nil
}

var errTooEarly = errors.New("by the clock of the servers its time is not over yet")

// A sweep goes round all names, a page at a time. Listing them removes records whose time is
// over and whose makers are gone. Only clients that keep records sweep, in proportion.
type sweep struct {
	due    int    // names to look at
	cursor string // where it goes on
	busy   bool
}

// sweepSome is called for every kept record, with the mutex held.
func (s *Store) sweepSome() {
	if s.sweep.due += sweepShare; s.sweep.due < sweepBatch || s.sweep.busy || s.life.Err() != nil {
		return
	}
	s.sweep.due, s.sweep.busy = s.sweep.due-sweepBatch, true
	q := store.Query{Cursor: s.sweep.cursor, Limit: sweepBatch}
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, removeLimit)
		defer cancel()
		page, _ := s.listAll(ctx, &q) // after an error the next sweep starts anew
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sweep.cursor, s.sweep.busy = page.Next, false
	})
}
