package zkstore

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

// A watchKind is what a watch is for.
type watchKind uint8

const (
	watchData watchKind = iota // any change of a node, or its end
	watchEnd                   // the end of a node that has no children
)

type watchKey struct {
	path string
	kind watchKind
}

// A watch is one that a server has, or is about to have.
type watch struct {
	fired chan struct{}
	set   bool // the server has it
}

// watch returns a channel that is closed when a node changes or ends, or the connection does,
// or nil if it does not exist. All who watch one node share a watch, once it is set.
func (s *Store) watch(path string, kind watchKind) (<-chan struct{}, error) {
	k := watchKey{path, kind}
	s.mu.Lock()
	w := s.watches[k]
	if w == nil { // before the question, so that no event is missed
		w = &watch{fired: make(chan struct{})}
		s.watches[k] = w
	}
	set := w.set
	s.mu.Unlock()
	if set {
		return w.fired, nil
	}
	var err error
	if kind == watchEnd {
		_, _, err = s.conn.Children(path)
	} else {
		_, _, err = s.conn.Get(path)
	}
	s.mu.Lock()
	if err != nil {
		s.fire(k)
	} else {
		w.set = true // or has fired
	}
	s.mu.Unlock()
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return w.fired, err
}

// isWatched reports whether a request is to set a watch: see link.
func (s *Store) isWatched(op uint32, path string) bool {
	kind := watchData
	if op == opChildren {
		kind = watchEnd
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches[watchKey{path, kind}] != nil || path == s.basePath()
}

// fire ends a watch. It needs the mutex.
func (s *Store) fire(k watchKey) {
	if w := s.watches[k]; w != nil {
		close(w.fired)
		delete(s.watches, k)
	}
}

// event is called by the library, before it reads what the server sent next. It must not
// block.
func (s *Store) event(e zk.Event) {
	if e.Path == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Path == s.basePath() {
		s.baseChanged()
		return
	}
	s.fire(watchKey{e.Path, watchData})
	if e.Type != zk.EventNodeDataChanged {
		s.fire(watchKey{e.Path, watchEnd})
	}
}

// watchTurn watches the one in front of a waiter. It is gone if there is none any more.
func (s *Store) watchTurn(c *claim, path string, kind watchKind) (gone bool, err error) {
	w, err := s.watch(path, kind)
	if err != nil || w == nil {
		return w == nil && err == nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.turn = w
	return false, nil
}

// Wait blocks until it is worth asking again for a queued identity: see store.Store. It
// returns nil at once if the identity is not queued through this handle. An end of the
// session ends it with an error: the place is gone.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	c, lost := s.mine[key{name, id}], s.lost
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
	case <-lost:
		return errLost
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return errClosed
	}
}
