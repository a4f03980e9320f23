package zkstore

import (
	"context"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A watchKey is a node, and whether only its end matters, or any change.
type watchKey struct {
	path string
	end  bool
}

// A watch is one that a server has, or is about to have.
type watch struct {
	fired  chan struct{} // closed when the node or the connection has ended, or the node changed
	set    chan struct{} // closed when the server has replied
	failed error         // of the request; known when set is closed
}

// err waits until a watch is set, and returns why it is not: ErrNoNode if the node does not
// exist.
func (w *watch) err(ctx context.Context) error {
	select {
	case <-w.set:
		return w.failed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch asks for a watch and does not wait for the reply. Waiters share the watch of a node.
func (s *Store) watch(path string, end bool) *watch {
	k := watchKey{path, end}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watches[k]; w != nil {
		return w
	}
	w := &watch{fired: make(chan struct{}), set: make(chan struct{})}
	s.watches[k] = w
	op := wire.Get(path, true)
	if end { // a watch for children: the node has none. One for data would tell every renewal
		op = wire.Children(path, true)
	}
	s.wire.Send(&wire.Call{Op: op, Then: func(call *wire.Call) {
		w.failed = call.Err
		close(w.set)
		s.mu.Lock()
		defer s.mu.Unlock()
		if call.Err != nil && s.watches[k] == w {
			s.fire(k)
		}
	}})
	return w
}

// fire ends a watch. It needs the mutex.
func (s *Store) fire(k watchKey) {
	if w := s.watches[k]; w != nil {
		close(w.fired)
		delete(s.watches, k)
	}
}

// event is called by the connection when a watched node has changed.
func (s *Store) event(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == s.tablePath() {
		s.tokens.known = false
	}
	s.fire(watchKey{path, false})
	s.fire(watchKey{path, true})
}

// isTold reports whether the server told of a change in front of a waiter. Then it knows of it.
func (s *Store) isTold(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-c.turn:
		return true
	default:
		return false
	}
}

// Wait blocks until it is worth asking again for a queued identity: see store.Store. It
// returns nil at once if the identity is not queued through this handle, and also when the
// connection or the session has ended.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	c := s.claims[key{name, id}]
	var turn, closes <-chan struct{}
	if c != nil {
		turn, closes = c.turn, c.closes
	}
	s.mu.Unlock()
	if c == nil || turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-closes:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Done():
		return errClosed
	}
}
