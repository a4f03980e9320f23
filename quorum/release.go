package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// lateFor is how long a connection that was cut may still deliver a request to a node that answers others.
	lateFor = time.Minute

	// undoFor is how long to go on with a node that does not answer. A server that hangs for longer
	// may execute a request then, and have a vote without a holder until its TTL is over.
	undoFor = 10 * time.Minute

	// undoPause is how long to wait before a message is repeated.
	undoPause = time.Second
)

// An ending is a call that ends what the nodes have of an identity.
type ending struct {
	release bool       // as opposed to Leave
	force   bool       // it is a Break
	keep    store.Keep // of a release
	replies chan reply[struct{}]
}

// leave and force are endings whose outcome nobody waits for.
var leave, force = new(ending), &ending{force: true}

// find returns nil if a node has the record that the message is to leave, and ErrNotHeld if it does not.
func (e *ending) find(ctx context.Context, n *node, key sessionKey) error {
	page, err := n.List(ctx, store.Query{Name: key.name})
	for _, lock := range page.Locks {
		if slices.ContainsFunc(lock.Holders, func(h store.Holder) bool { return h.ID == key.id && h.State == e.keep.State }) {
			return nil
		}
	}
	return cmp.Or(err, store.ErrNotHeld)
}

// end queues a message that ends what a node has. From now on, the vote of the node does not count.
func (se *session) end(i int, e *ending) {
	se.seats[i].ends++
	se.post(i, func() {
		se.seats[i].ends--
		err := se.endAt(i, e)
		if e.replies != nil {
			e.replies <- reply[struct{}]{node: i, err: err}
		}
	})
}

// endAt sends a message that ends what a node has, and sees to it that it is repeated for as long as it may
// have to be. An ending that somebody waits for is sent even if another one is repeated already, because its
// answer counts. It unlocks the mutex meanwhile.
func (se *session) endAt(i int, e *ending) error {
	defer se.reopen()
	s, t := se.store, &se.seats[i]
	sent := s.now()
	switch {
	case !t.left && t.kept == e.keep.State && t.kept != store.Held: // since the message before it
		return nil
	case !t.left && !e.force:
		return store.ErrNotHeld
	case t.end == nil:
		t.begin = sent
	}
	n, had, again := s.nodes[i], t.granted, t.end != nil && e.keep.State != store.Held
	t.queued, t.without, t.end = false, false, e
	se.mu.Unlock()
	late, err := n.call(&n.others, func(ctx context.Context) error {
		switch name, id := se.key.name, se.key.id; {
		case e.force:
			return n.Break(ctx, name, id)
		case e.release && had:
			return n.Release(ctx, name, id, e.keep)
		default:
			return n.Leave(ctx, name, id)
		}
	})
	if again && errors.Is(err, store.ErrNotHeld) && n.Capabilities().Features.Has(store.FeatureList) { // a reply may have been lost
		_, err = n.call(&n.others, func(ctx context.Context) error { return e.find(ctx, n, se.key) })
	}
	se.mu.Lock()
	answered, now := err == nil || isAnswer(err), s.now()
	if t.kept = store.Held; had && err == nil {
		t.kept = e.keep.State
	}
	if late {
		t.lost = sent
	}
	if answered && (t.lost == 0 || now-t.lost > lateFor) || now-t.begin > undoFor {
		if t.end, t.left, t.granted, t.lost = nil, false, false, 0; !answered {
			se.closing = store.Held // the record may be there
		}
	} else if !t.repeating {
		t.repeating = true
		se.later(undoPause, func() {
			se.post(i, func() {
				if t.repeating = false; t.end != nil {
					se.endAt(i, t.end)
				}
			})
		})
	}
	if !had && answered {
		err = store.ErrNotHeld // it is not known whether a vote was ended
	}
	t.without = errors.Is(err, store.ErrNotHeld)
	return err
}

// reopen removes the record of a Keep if too many nodes were without a vote: the lease was lost.
func (se *session) reopen() {
	if se.closing == store.Held {
		return
	}
	without := 0
	for i := range se.seats {
		if t := &se.seats[i]; t.ends == 0 && (t.without || !t.left && t.kept == store.Held) {
			without++
		}
	}
	if without > len(se.seats)-se.store.majority {
		se.closing = store.Held
		for i := range se.seats {
			se.end(i, force)
		}
	}
}

// endAll ends what the nodes have of an identity, and waits until a majority is ok, too many of them are
// without a vote, or all have replied. The rest is done in the background.
func (s *Store) endAll(ctx context.Context, name string, id store.ID, e *ending) error {
	if err := s.life.EnterCall(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	se := s.open(name, id, true)
	defer s.shut(se)
	errs := slices.Repeat([]error{errTimeout}, len(s.nodes))
	e.replies = make(chan reply[struct{}], len(s.nodes))
	se.mu.Lock()
	keep, further := e.keep.State, se.further(ttlAtNodes(se.ttl))
	closes := keep != store.Held && se.isValid()
	if closes {
		se.closing = keep
	} else if se.closing != keep {
		se.closing = store.Held
	}
	if se.attempt != nil {
		se.attempt.replies <- reply[acquired]{node: -1} // it is cancelled
	}
	se.attempt, se.held, se.want = nil, false, wantNothing
	for i := range se.seats {
		vote := closes && !se.hasVote(i) && !se.name.isStuck(s.nodes[i]) // all nodes shall keep the name closed
		if vote {
			se.post(i, func() { se.acquireAt(i, further) })
		}
		switch {
		case vote || se.seats[i].left:
			se.end(i, e)
		case se.seats[i].kept == keep && keep != store.Held: // since an earlier call that failed
			e.replies <- reply[struct{}]{node: i}
		default:
			e.replies <- reply[struct{}]{node: i, err: store.ErrNotHeld}
		}
	}
	se.mu.Unlock()
	ok, without, spare := 0, 0, len(s.nodes)-s.majority
	receive(ctx, s.opts.Timeout, e.replies, len(s.nodes), func(r reply[struct{}]) bool {
		if !e.release && errors.Is(r.err, store.ErrNotHeld) {
			r.err = nil // nothing is left, which is all that Leave wants
		}
		errs[r.node] = r.err
		ok, without = tally(errs)
		return ok >= s.majority || without > spare
	})
	switch {
	case without > spare:
		return store.ErrNotHeld
	case ok >= s.majority:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case keep == store.Held && ok > 0 && ok+without >= s.majority:
		return nil
	}
	return s.failures(errs, ok)
}

// Release ends a grant on all nodes, or keeps its name closed for a time; see [store.Store]. It
// returns when a majority has ended it. It returns [store.ErrNotHeld] if too many nodes do not have
// the grant for it to have a majority.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	if keep.State != store.Held && !s.caps.Features.Has(store.FeatureKeep) {
		return fmt.Errorf("%w: not all nodes can keep a name closed", store.ErrUnsupported)
	}
	return s.endAll(ctx, name, id, &ending{release: true, keep: keep})
}

// Leave removes an identity from the queues and ends its grant, on all nodes; see [store.Store]. It
// returns when a majority has done so.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	return s.endAll(ctx, name, id, new(ending))
}

// Break ends a grant or a kept record by force, on all nodes; see [store.Store]. It returns
// [store.ErrNotHeld] if no node that answers has it.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if !s.caps.Features.Has(store.FeatureList) {
		return fmt.Errorf("%w: not all nodes can break a lock", store.ErrUnsupported)
	}
	if err := s.life.EnterCall(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	_, errs := gatherAll(ctx, s, s.nodes, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, n.Break(ctx, name, id)
	})
	ok, without := tally(errs)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case ok+without < s.majority:
		return s.failures(errs, ok+without)
	case ok == 0:
		return store.ErrNotHeld
	}
	se := s.open(name, id, true)
	defer s.shut(se)
	se.mu.Lock()
	defer se.mu.Unlock()
	for i, err := range errs {
		if err != nil && !errors.Is(err, store.ErrNotHeld) {
			se.end(i, force)
		}
	}
	if se.held && se.attempt == nil {
		se.held, se.want = false, wantNothing // a majority does not have it
		se.settleAll()
	}
	return nil
}
