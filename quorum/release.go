package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// An ending is a call that ends what the nodes have of an identity.
type ending struct {
	release bool           // as opposed to Leave
	keep    store.Keep     // of a release
	further *store.Request // for nodes without a vote, so that all nodes keep the name closed; nil if not wanted

	pending, ok, failed int // nodes
	errs                []error
	ready               chan struct{} // gets a value when the outcome is known; nil if nobody waits
	isDecided           func() bool
}

// leave is an ending whose outcome nobody waits for.
var leave = new(ending)

// errNothing means that a node has nothing of the identity.
var errNothing = fmt.Errorf("nothing is left to end: %w", store.ErrNotHeld)

// at sends the message to a node. Had tells that the node has given its vote.
func (e *ending) at(ctx context.Context, n *node, key sessionKey, had bool) error {
	if e.release && had {
		return n.Release(ctx, key.name, key.id, e.keep)
	}
	return n.Leave(ctx, key.name, key.id)
}

// deliver notes the reply of a node. The caller holds the mutex of the session.
func (e *ending) deliver(i int, err error) {
	if e.ready == nil {
		return
	}
	e.pending--
	switch {
	case err == nil:
		e.ok++
	case !errors.Is(err, store.ErrNotHeld):
		e.failed++
		e.errs[i] = err
	}
	if e.isDecided() || e.pending == 0 {
		select {
		case e.ready <- struct{}{}:
		default:
		}
	}
}

// run ends what the nodes have, and waits until the outcome is known. The rest is done in the
// background.
func (e *ending) run(ctx context.Context, se *session) error {
	s := se.store
	e.pending, e.errs, e.ready = len(s.nodes), make([]error, len(s.nodes)), make(chan struct{}, 1)
	se.mu.Lock()
	if e.keep.State != store.Held && se.isValid() {
		further := se.further()
		e.further = &further
	}
	if a := se.attempt; a != nil {
		a.abort(errLeft)
	}
	se.held, se.want = false, wantNothing
	for i := range se.seats {
		t := &se.seats[i]
		t.ask, t.repair = nil, false
		if t.sending || t.left || e.further != nil {
			t.end = e
			se.drive(i)
		} else {
			e.deliver(i, errNothing)
		}
	}
	se.mu.Unlock()
	timeout := time.NewTimer(s.opts.Timeout)
	defer timeout.Stop()
	select {
	case <-e.ready:
	case <-timeout.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	if e.isDecided() {
		return nil
	}
	for i := range se.seats {
		if t := &se.seats[i]; e.errs[i] == nil && (t.busy || t.end == e) {
			e.errs[i] = errTimeout
		}
	}
	e.failed += e.pending
	e.pending = 0
	return nil
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
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	se := s.open(name, id, true)
	defer s.shut(se)
	e := ending{release: true, keep: keep}
	e.isDecided = func() bool { return e.ok >= s.majority || e.ok+e.failed+e.pending < s.majority }
	if err := e.run(ctx, se); err != nil {
		return err
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	switch {
	case e.ok >= s.majority:
		return nil
	case e.ok+e.failed+e.pending < s.majority:
		return store.ErrNotHeld
	case keep.State == store.Held && len(s.nodes)-e.failed >= s.majority && e.ok > 0:
		return nil
	}
	return s.failures(e.errs, e.ok)
}

// Leave removes an identity from the queues and ends its grant, on all nodes; see [store.Store]. It
// returns when a majority has done so.
func (s *Store) Leave(ctx context.Context, name string, id store.ID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	se := s.open(name, id, true)
	defer s.shut(se)
	var e ending
	confirmed := func() int { return len(s.nodes) - e.failed - e.pending }
	e.isDecided = func() bool { return confirmed() >= s.majority }
	if err := e.run(ctx, se); err != nil {
		return err
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	if e.isDecided() {
		return nil
	}
	return s.failures(e.errs, confirmed())
}

// Break ends a grant or a kept record by force, on all nodes; see [store.Store]. It returns
// [store.ErrNotHeld] if no node that answers has it.
func (s *Store) Break(ctx context.Context, name string, id store.ID) error {
	if !s.caps.Features.Has(store.FeatureList) {
		return fmt.Errorf("%w: not all nodes can break a lock", store.ErrUnsupported)
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	errs := slices.Repeat([]error{errTimeout}, len(s.nodes))
	gather(ctx, s, s.nodes, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, n.Break(ctx, name, id)
	}, func(i int, _ struct{}, err error) bool { errs[i] = err; return false }, nil)
	if err := ctx.Err(); err != nil {
		return err
	}
	ok, without := 0, 0
	for i, err := range errs {
		switch {
		case err == nil:
			ok++
		case errors.Is(err, store.ErrNotHeld):
			without++
			errs[i] = nil
		}
	}
	switch {
	case ok+without < s.majority:
		return s.failures(errs, ok+without)
	case ok == 0:
		return store.ErrNotHeld
	}
	for i, n := range s.nodes {
		if errs[i] != nil {
			n.undoLater(undoing{key: sessionKey{name, id}, end: leave, lost: s.now()})
		}
	}
	return nil
}

// A NodesError reports that too few nodes confirmed a call. It has the reasons of the other nodes.
type NodesError struct {
	Confirmed, Needed int
	Nodes             map[string]error // by the name of the node
	order             []string
	all               int
}

func (e *NodesError) Error() string {
	text := fmt.Sprintf("quorum store: %d of %d nodes confirmed, %d are needed", e.Confirmed, e.all, e.Needed)
	for i, name := range e.order {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		text += fmt.Sprintf("%s%s: %v", sep, name, e.Nodes[name])
	}
	return text
}

// Unwrap returns the errors of the nodes.
func (e *NodesError) Unwrap() []error {
	errs := make([]error, 0, len(e.order))
	for _, name := range e.order {
		// An error of the store contract from one node is not an answer of the quorum.
		if err := e.Nodes[name]; !isAnswer(err) && !errors.Is(err, store.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errs
}

// failures combines the errors of the nodes into one.
func (s *Store) failures(errs []error, confirmed int) error {
	if s.life.Closing.Err() != nil {
		return errClosed
	}
	e := &NodesError{Confirmed: confirmed, Needed: s.majority, Nodes: make(map[string]error), all: len(s.nodes)}
	for i, n := range s.nodes {
		if errs[i] != nil {
			e.Nodes[n.name] = errs[i]
			e.order = append(e.order, n.name)
		}
	}
	return e
}
