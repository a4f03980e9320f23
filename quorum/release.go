package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Release ends a grant on all nodes, or keeps its name closed for a time; see [store.Store]. It
// returns [store.ErrNotHeld] if too many nodes do not have the grant for it to have a majority.
// It does not wait for slow nodes if a majority no longer has the grant.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	if keep.State != store.Held && !s.caps.Features.Has(store.FeatureKeep) {
		return fmt.Errorf("%w: not all nodes can keep a name closed", store.ErrUnsupported)
	}
	if s.isShared(name, id) {
		return store.ErrNotHeld
	}
	if keep.State == store.Held {
		if done, err := s.tryPass(ctx, name, id); done {
			return err
		}
	}
	e := ending{
		s: s, name: name, id: id, keeps: keep.State != store.Held, tells: true,
		call: func(ctx context.Context, se *session, n *node) error {
			return n.Release(ctx, name, se.idAt(n.index), keep)
		},
	}
	if err := e.run(ctx); err != nil {
		return err
	}
	switch {
	case !e.shared.IsZero() && e.errs[e.bell] != nil:
		return e.failure() // only the bell knows
	case e.endedShared():
		return nil
	case e.ok < s.majority && e.unlisted != nil:
		return s.failures(e.unlisted)
	case e.ok+e.failed < s.majority:
		return store.ErrNotHeld
	case e.enough():
		return nil
	}
	return e.failure()
}

// isShared reports whether an identity is that of votes that are passed on. It is the identity of no
// caller, but a listing may contain it, and a call with it could end or extend the votes of any holder.
func (s *Store) isShared(name string, id store.ID) bool { return s.passes && isBaton(name, id) }

// Leave removes an identity from the queue and releases its grant, on all nodes; see
// [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	if s.isShared(name, id) {
		return nil
	}
	e := ending{
		s: s, name: name, id: id,
		call: func(ctx context.Context, se *session, n *node) error { return s.leaveAt(ctx, se, n) },
	}
	if err := e.run(ctx); err != nil || e.enough() {
		return err
	}
	return e.failure()
}

// Break ends a grant or a kept record by force, on all nodes; see [store.Store]. It returns
// [store.ErrNotHeld] if no node that answers has the grant.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if !s.caps.Features.Has(store.FeatureList) {
		return fmt.Errorf("%w: not all nodes can break a lock", store.ErrUnsupported)
	}
	if s.isShared(name, id) {
		return store.ErrNotHeld
	}
	e := ending{
		s: s, name: name, id: id, everywhere: true,
		call: func(ctx context.Context, se *session, n *node) error { return n.Break(ctx, name, se.idAt(n.index)) },
	}
	if err := e.run(ctx); err != nil {
		return err
	}
	switch {
	case !e.enough():
		return e.failure()
	case e.ok > 0 && e.ok < s.majority && e.unlisted != nil:
		return s.failures(e.unlisted)
	case e.ok == 0:
		return store.ErrNotHeld
	}
	return nil
}

// findShared finds the votes that a holder of another handle may pass on, and the bell that has the
// grant of the holder. It finds them only if all nodes answer, one of them has the grant, and all others
// have these votes. Otherwise the votes could be those of another holder. They end soon by themselves.
func (e *ending) findShared(ctx context.Context) {
	s := e.s
	if !s.passes || isBaton(e.name, e.id) { // the latter for endShared
		return
	}
	var silent silent
	pages, errs := make([]store.Page, len(s.nodes)), make([]error, len(s.nodes))
	var wg sync.WaitGroup
	for i := range s.nodes {
		wg.Go(func() { pages[i], errs[i] = s.listNode(ctx, i, store.Query{Name: e.name}, &silent) })
	}
	wg.Wait()
	var shared store.ID
	bell, votes, others := -1, 0, false
	for i, page := range pages {
		for _, lock := range page.Locks {
			for _, h := range lock.Holders {
				switch {
				case isBaton(e.name, h.ID):
					others = others || votes > 0 && h.ID != shared
					shared, votes = h.ID, votes+1
				case h.ID == e.id:
					bell = i
				default:
					others = true
				}
			}
		}
	}
	failed := slices.ContainsFunc(errs, func(err error) bool { return err != nil })
	switch {
	case shared.IsZero():
	case failed:
		e.unlisted = errs
	case bell < 0:
	case others || votes != len(s.nodes)-1:
		errs[bell] = errShared
		e.unlisted = errs
	default:
		if errs[bell] = s.isBell(ctx, bell); errs[bell] != nil {
			e.unlisted = errs
			return
		}
		e.shared, e.bell = shared, bell
	}
}

var errShared = errors.New("the votes of the other nodes may be those of another lease")

// isBell returns nil if the holder at a node has the votes that are passed on, provided that it is the
// only one that has a vote of its own. A node that has restarted does not know the holder.
func (s *Store) isBell(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	return s.nodes[i].counts(ctx)
}

// endedShared reports whether the bell has ended the grant of a holder that could pass its votes on.
func (e *ending) endedShared() bool { return !e.shared.IsZero() && e.confirmed&(1<<e.bell) != 0 }

// endShared ends the votes that the holder could pass on. The bell has ended the grant of the holder
// before, so that the holder cannot pass them on any more.
func (e *ending) endShared(ctx context.Context) error {
	other := ending{
		s: e.s, name: e.name, id: e.shared, everywhere: true,
		call: func(ctx context.Context, _ *session, n *node) error {
			return n.Release(ctx, e.name, e.shared, store.Keep{})
		},
	}
	if err := other.run(ctx); err != nil || other.enough() {
		e.ok += other.ok
		return err
	}
	return other.failure()
}

// An ending is a call that ends a grant at all nodes that may have it.
//
// If it closes the name (keeps), it first requests the votes of the other nodes, while the lease
// is valid. So all nodes have the closure, and it survives the loss of a minority.
type ending struct {
	s          *Store
	name       string
	id         store.ID
	keeps      bool
	everywhere bool // other handles may have asked for votes
	tells      bool // the result says whether there was a majority
	call       func(ctx context.Context, se *session, n *node) error

	shared   store.ID // of the votes that a holder of another handle could pass on
	bell     int      // that has the grant of that holder
	unlisted []error  // why it is not known whether there are such votes

	ok, without, failed int // nodes that confirmed, that do not have it, and that did not answer
	confirmed           uint16
	errs                []error
}

// enough reports whether the nodes that did not answer are not needed.
func (e *ending) enough() bool {
	if e.keeps {
		return e.ok >= e.s.majority
	}
	return e.ok+e.without >= e.s.majority
}

// decided reports whether the missing replies cannot change the result. If one node is enough to have
// had the grant, as it is while votes are passed on, each of them may.
func (e *ending) decided(missing int) bool {
	if e.everywhere && e.ok == 0 {
		return false
	}
	return !e.tells || e.ok >= e.s.majority || e.ok+missing+e.failed < e.s.majority
}

func (e *ending) failure() error {
	for _, err := range e.errs {
		if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnsupported) {
			return err
		}
	}
	return e.s.failures(e.errs)
}

// run makes the calls and counts the replies. It waits for all nodes that answer in time, so that
// the next request finds the name free at all of them.
func (e *ending) run(ctx context.Context) error {
	s := e.s
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	se := s.open(e.name, e.id)
	defer s.shut(se)
	if e.keeps {
		s.adopt(ctx, se)
	}
	vote, _, valid := se.further(s.now())
	foreign := e.everywhere || !se.hasAsked()
	if foreign && !e.keeps && (e.tells || e.everywhere) { // a Leave may be that of a request without a lease
		e.findShared(ctx)
	}
	asked, voted := se.end(len(s.nodes))
	op := s.newOp(se)
	op.ending, op.final = true, !e.keeps && !e.everywhere
	defer op.finish(nil)
	e.errs = make([]error, len(s.nodes))
	pending := 0
	for k := range s.nodes {
		// Call the bell last, because the waiter that it wakes asks the other nodes at once.
		i := s.order(e.name, len(s.nodes)-1-k)
		votes := e.keeps && valid && voted&(1<<i) == 0
		if !votes && !e.everywhere && asked&(1<<i) == 0 {
			e.without++
			continue
		}
		pending++
		se.noteAsked(i)
		op.start(i, func(ctx context.Context, n *node, r *reply) {
			if id, ok := se.strayAt(i); ok {
				r.err = n.Release(ctx, e.name, id, store.Keep{})
				if r.err == nil && !e.keeps || r.err != nil && !isAnswer(r.err) {
					return
				}
			}
			if votes {
				answer, err := n.Acquire(ctx, vote)
				if err != nil || !answer.Granted() {
					if r.err = err; err == nil {
						r.err = store.ErrNotHeld
					}
					return
				}
			}
			r.err = e.call(ctx, se, n)
		})
	}
	slow := false
	needsBell := !e.shared.IsZero()
	for pending > 0 && (needsBell || !(e.enough() && (slow || e.decided(pending) && op.awaited() == 0))) {
		r, ok := op.next(ctx, s.hedge(), op.awaited())
		switch {
		case ok:
			pending--
			needsBell = needsBell && r.node != e.bell
			switch e.errs[r.node] = r.err; {
			case r.err == nil:
				e.ok++
				e.confirmed |= 1 << r.node
			case errors.Is(r.err, store.ErrNotHeld):
				e.errs[r.node] = nil
				e.without++
			default:
				e.failed++
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case op.ctx.Err() != nil:
			for i := range s.nodes {
				if op.isPending(i) {
					e.errs[i] = errTimeout
					s.nodes[i].fail(errTimeout)
				}
			}
			if e.failed += pending; e.endedShared() {
				return e.failure()
			}
			return nil
		default:
			slow = true
			for i := range s.nodes {
				if op.isPending(i) {
					s.nodes[i].slow.Store(true)
				}
			}
		}
	}
	e.failed += pending
	var err error
	if e.endedShared() {
		err = e.endShared(ctx)
	}
	if foreign && !e.keeps && (e.ok > 0 || !e.tells && !e.everywhere) {
		s.leaveAll(ctx, se)
	}
	return err
}

// leaveAll sends a Leave to all nodes once more, because the identity belongs to another handle. That
// handle may have requested a further vote of its lease at the same time: see complete. If that
// vote comes after this Leave, the handle finds out that the nodes have lost the lease.
func (s *Store) leaveAll(ctx context.Context, se *session) {
	op := s.newOp(se)
	op.ending = true
	defer op.finish(nil)
	for i := range s.nodes {
		op.start(i, func(ctx context.Context, n *node, r *reply) { r.err = s.leaveAt(ctx, se, n) })
	}
	for range s.nodes {
		if _, ok := op.next(ctx, s.hedge(), 1); !ok {
			return
		}
	}
}

const (
	// maxRepeats is how many calls of leaveLater a node has at a time. The votes of others end with
	// their TTL.
	maxRepeats = 256

	leastRepeatPause = 250 * time.Millisecond
	mostRepeatPause  = 4 * time.Second
)

// leaveLater gives back the vote of an identity that is not used again, in the background: the node
// did not confirm it. It ends when all votes have ended by themselves.
func (s *Store) leaveLater(n *node, key sessionKey) {
	if n.repeats.Add(1) > maxRepeats {
		n.repeats.Add(-1)
		return
	}
	s.life.Go(func(work context.Context) {
		defer n.repeats.Add(-1)
		end := s.now() + ttlAtNodes(s.maxTTL.load())
		for pause := leastRepeatPause; s.now()+pause < end; pause = min(2*pause, mostRepeatPause) {
			timer := time.NewTimer(pause/2 + rand.N(pause/2))
			select {
			case <-timer.C:
			case <-s.life.Closing.Done():
				timer.Stop()
				return
			}
			ctx, cancel := context.WithTimeout(work, s.opts.Timeout)
			err := n.call(n.callContext(ctx), func(ctx context.Context) error { return n.Leave(ctx, key.name, key.id) })
			cancel()
			if err == nil || isAnswer(err) {
				return
			}
		}
	})
}
