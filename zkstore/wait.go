package zkstore

import (
	"context"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A watchKey is a node and the kind of the watch: for its deletion only, or for any change.
type watchKey struct {
	path string
	end  bool
}

// watch sends a request for a watch and does not wait for the reply. The channel is closed when the node
// changes or is deleted, when it does not exist, when the session has ended, or when it is resumed over another
// connection. Servers forget a watch when its connection ends, but nobody could ask again before the next one.
// Waiters share the watch of a node.
//
// The server replies in order. So when a caller reads something after this call, the watch is active as
// soon as the reply arrives, and every later change closes the channel.
func (s *Store) watch(path string, end bool) <-chan struct{} {
	k := watchKey{path, end}
	s.mu.Lock()
	defer s.mu.Unlock()
	if fired := s.watches[k]; fired != nil {
		return fired
	}
	fired := make(chan struct{})
	s.watches[k] = fired
	op := wire.Get(path, true)
	if end { // a request node has no children, and a watch for data would report each renewal
		op = wire.Children(path, true)
	}
	s.wire.Send(&wire.Call{Op: op, Then: func(call *wire.Call) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if call.Err != nil && s.watches[k] == fired {
			s.fire(k)
		}
	}})
	return fired
}

// fire ends a watch. The caller holds the mutex.
func (s *Store) fire(k watchKey) {
	if fired := s.watches[k]; fired != nil {
		close(fired)
		delete(s.watches, k)
	}
}

// event is called by the connection when a watched node, or only the list of its children, has changed.
func (s *Store) event(path string, children bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path == s.tablePath() {
		s.tokens.known = false
	}
	if s.fire(watchKey{path, true}); !children { // every waiter of a name watches its data
		s.fire(watchKey{path, false})
	}
}

// Wait blocks until a queued identity should ask again; see [store.Store]. It returns nil at once if the identity is
// not queued through this handle, or if the session has ended or was resumed over another connection.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if s.life.Closing.Err() != nil {
		return s.life.ErrClosed
	}
	var turn, closes <-chan struct{}
	s.mu.Lock()
	if c := s.claims[wake.Key{Name: name, ID: id}]; c != nil {
		turn, closes = c.turn, c.closes
	}
	s.mu.Unlock()
	if turn == nil && closes == nil {
		return ctx.Err()
	}
	select {
	case <-turn:
	case <-closes:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Closing.Done():
		return s.life.ErrClosed
	}
	return nil
}
