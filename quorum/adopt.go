package quorum

import (
	"context"
	"sync"

	"github.com/holdfast-lock/holdfast/store"
)

// adopt gives the votes of a baton to the identity of its lease. From then on the lease is like any
// other: it can be renewed, listed and closed, and cannot be passed on. It returns when all nodes have
// answered, or when one of them takes longer than usual.
//
// A vote whose renaming was not confirmed does not count for a renewal. It must not be ended as long
// as the lease is valid, because it may be needed until then. The next renewal tries it again.
func (s *Store) adopt(ctx context.Context, se *session) {
	se.mu.Lock()
	b := se.baton
	if b == nil || b.state == batonPassing || !se.held {
		se.mu.Unlock()
		return
	}
	if b.state == batonAdopted {
		adopted := b.adopted
		se.mu.Unlock()
		select {
		case <-adopted:
		case <-ctx.Done():
			return
		}
		se.mu.Lock()
		if se.stray == 0 || b.adopted != adopted || se.baton != b || !se.held { // or another call tries it again
			se.mu.Unlock()
			return
		}
	} else {
		b.state = batonAdopted
		b.voted = se.voted
		se.stray, se.under = se.under, 0
		se.voted &^= se.stray
	}
	adopted := make(chan struct{})
	b.adopted = adopted
	stray, voted := se.stray, b.voted
	se.mu.Unlock()
	defer close(adopted)
	o := s.newOp(se)
	defer o.finish(nil)
	pending := 0
	for i := range s.nodes {
		if stray&(1<<i) != 0 {
			pending++
			o.start(i, func(ctx context.Context, n *node, r *reply) { r.err = s.rename(ctx, se, b.id, n, voted&(1<<i) != 0) })
		}
	}
	for ; pending > 0; pending-- {
		if _, ok := o.next(ctx, s.hedge(), pending); !ok {
			return
		}
	}
}

// hasBaton reports whether a lease has votes that could be passed on.
func (se *session) hasBaton() bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.held && se.baton != nil && se.baton.state == batonHeld
}

// adoptAll is like adopt, for the leases that are renewed.
func (s *Store) adoptAll(ctx context.Context, grants []store.Renewal) {
	if !s.passes {
		return
	}
	var wg sync.WaitGroup
	for i := range grants {
		se := s.find(grants[i].Name, grants[i].ID)
		if se == nil {
			continue
		}
		se.mu.Lock()
		needed := se.baton != nil && se.held
		se.mu.Unlock()
		if needed {
			s.keep(se)
			wg.Go(func() {
				defer s.shut(se)
				s.adopt(ctx, se)
			})
		}
	}
	wg.Wait()
}

// rename gives the vote of one node to the identity of the lease, for a caller that has the lane. Voted
// says that the node had a vote.
func (s *Store) rename(ctx context.Context, se *session, from store.ID, n *node, voted bool) error {
	req, _, valid := se.further(s.now())
	if !valid {
		return errOver
	}
	renamed, err := n.passer.Rename(ctx, from, req, req.Floor+1)
	if err != nil {
		return err
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	se.stray &^= 1 << n.index
	if renamed || voted { // otherwise it can still be asked for its vote
		se.voted |= 1 << n.index
	}
	if !renamed {
		return store.ErrNotHeld
	}
	return nil
}

// strayAt returns the identity of a baton if a node may have it or that of the lease.
func (se *session) strayAt(i int) (id store.ID, ok bool) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.baton == nil || se.stray&(1<<i) == 0 {
		return id, false
	}
	return se.baton.id, true
}
