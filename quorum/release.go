package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Release ends a grant on all nodes, or keeps its name closed for a time; see [store.Store]. It
// returns as soon as a majority confirms. It returns [store.ErrNotHeld] if so many nodes do not
// have the grant that it had no majority.
func (s *Store) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	if err := store.CheckKeep(keep); err != nil {
		return err
	}
	if keep.State != store.Held && !s.caps.Features.Has(store.FeatureKeep) {
		return fmt.Errorf("%w: not all nodes can keep a name closed", store.ErrUnsupported)
	}
	return s.toAll(ctx, name, id, keep.State != store.Held, func(ctx context.Context, n *node) error {
		return n.Release(ctx, name, id, keep)
	}, func(o outcome) (error, bool) {
		switch {
		case o.ok >= s.majority:
			return nil, true
		case o.notHeld > len(s.nodes)-s.majority:
			return store.ErrNotHeld, true
		case o.pending > 0 && (!o.slow || keep.State != store.Held):
			return nil, false
		case len(s.nodes)-o.unasked-o.notHeld < s.majority:
			return store.ErrNotHeld, true // the others would not have been a majority
		case o.ok+o.notHeld+o.unasked >= s.majority && keep.State == store.Held:
			return nil, true // a majority does not have it
		case o.pending > 0:
			return nil, false
		}
		return o.failure(), true
	})
}

// Leave removes an identity from the queue and releases its grant, on all nodes; see
// [store.Store].
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	return s.toAll(ctx, name, id, false, func(ctx context.Context, n *node) error {
		return n.Leave(ctx, name, id)
	}, func(o outcome) (error, bool) {
		switch {
		case o.ok >= s.majority, (o.slow || o.pending == 0) && o.ok+o.unasked >= s.majority:
			return nil, true
		case o.pending > 0:
			return nil, false
		}
		return o.failure(), true
	})
}

// Break ends a grant or a kept record by force, on all nodes; see [store.Store]. It returns
// [store.ErrNotHeld] if no node has it.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if !s.caps.Features.Has(store.FeatureList) {
		return fmt.Errorf("%w: not all nodes can break a lock", store.ErrUnsupported)
	}
	if se := s.find(name, id); se != nil {
		se.mu.Lock()
		se.asked = 0 // it may have votes that came by another handle
		se.mu.Unlock()
	}
	return s.toAll(ctx, name, id, false, func(ctx context.Context, n *node) error {
		return n.Break(ctx, name, id)
	}, func(o outcome) (error, bool) {
		switch {
		case o.ok >= s.majority:
			return nil, true
		case o.notHeld > len(s.nodes)-s.majority && o.ok == 0:
			return store.ErrNotHeld, true
		case o.pending > 0:
			return nil, false
		case o.ok+o.notHeld >= s.majority:
			return nil, true
		}
		return o.failure(), true
	})
}

// An outcome counts how the nodes answered a call that ends something.
type outcome struct {
	s                    *Store
	ok, notHeld, pending int
	unasked              int  // nodes that have no vote
	slow                 bool // some nodes take longer than others
	errs                 []error
}

func (o *outcome) failure() error {
	for _, err := range o.errs {
		if errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnsupported) {
			return err
		}
	}
	return o.s.failures(o.errs)
}

// toAll makes a call at all nodes that ends something, until decided says what the result is.
// All nodes that may have a vote get the call, also those whose answers are not needed.
//
// If the call closes the name (keeps), the other nodes vote first, while the lease is valid, so that
// a closure is at all nodes and survives the loss of a minority. A call that failed at a node is
// not replaced by a Leave then: the caller repeats it.
func (s *Store) toAll(ctx context.Context, name string, id store.ID, keeps bool, call func(ctx context.Context, n *node) error, decided func(outcome) (error, bool)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	se := s.open(name, id)
	defer s.shut(se)
	vote, _, valid := se.further(s.now())
	se.forget()
	op := s.newOp(se)
	op.ending, op.keeps = true, keeps
	defer op.finish(nil)
	targets := se.targets(len(s.nodes))
	for _, i := range targets {
		op.start(i, func(ctx context.Context, n *node, r *reply) { r.err = call(ctx, n) })
	}
	for i := range s.nodes {
		if !keeps || !valid || slices.Contains(targets, i) {
			continue
		}
		se.noteAsked(i)
		targets = append(targets, i)
		op.start(i, func(ctx context.Context, n *node, r *reply) {
			var a store.Answer
			switch a, r.err = n.Acquire(ctx, vote); {
			case r.err != nil:
			case a.Granted():
				r.err = call(ctx, n)
			default:
				r.err = store.ErrNotHeld
			}
		})
	}
	o := outcome{s: s, pending: len(targets), unasked: len(s.nodes) - len(targets), errs: make([]error, len(s.nodes))}
	bell := s.firstAlive(name) // the next one asks there first
	for {
		if err, ok := decided(o); ok && (o.slow || !op.isPending(bell)) {
			return err
		}
		limit := time.Duration(0)
		if !o.slow {
			limit = s.hedge()
		}
		r, ok := op.next(ctx, limit)
		switch {
		case !ok && ctx.Err() != nil:
			return ctx.Err()
		case !ok && op.ctx.Err() == nil:
			o.slow = true
			op.mu.Lock()
			for i, pending := range op.pending {
				if pending {
					s.nodes[i].isSlow()
				}
			}
			op.mu.Unlock()
			continue
		case !ok:
			o.pending = 0
			op.mu.Lock()
			for i, pending := range op.pending {
				if pending {
					o.errs[i] = errTimeout
				}
			}
			op.mu.Unlock()
			continue
		}
		o.pending--
		o.errs[r.node] = r.err
		switch {
		case r.err == nil:
			o.ok++
		case errors.Is(r.err, store.ErrNotHeld):
			o.notHeld++
			o.errs[r.node] = nil
		}
	}
}
