package quorum

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// order returns the i-th node in the order of a name. It is the same for all clients.
func (s *Store) order(name string, i int) int {
	h := uint32(2166136261) // FNV-1a, which must never change
	for j := 0; j < len(name); j++ {
		h = (h ^ uint32(name[j])) * 16777619
	}
	return (int(h%uint32(len(s.nodes))) + i) % len(s.nodes)
}

// chooseBell returns the node at which an identity queues: the first one, in the order of the name,
// that is not down. An identity that is queued stays where it is, unless that node is down.
func (se *session) chooseBell() int {
	s := se.store
	if se.want == wantPlace && !s.nodes[se.bell].isDown() {
		return se.bell
	}
	for k := range s.nodes {
		if i := s.order(se.key.name, k); !s.nodes[i].isDown() {
			return i
		}
	}
	return s.order(se.key.name, 0)
}

// Wait blocks until a refused identity should ask again; see [store.Store]. The bell of the name
// wakes it. It returns nil at once if the identity does not wait.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if s.life.Closing.Err() != nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	se := s.find(name, id)
	if se == nil {
		return nil
	}
	se.mu.Lock()
	waits, queued, bell := se.want == wantPlace, se.seats[se.bell].queued, s.nodes[se.bell]
	se.mu.Unlock()
	if !waits {
		return nil
	}
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life.Closing, cancel)()
	if queued {
		err := bell.Wait(waitCtx, name, id)
		if err == nil {
			se.mu.Lock()
			se.woken = true
			se.mu.Unlock()
			return nil
		}
		if waitCtx.Err() == nil { // it cannot push, so the waiter polls
			bell.fail(err)
		}
	}
	select {
	case <-time.After(mostSplitPause):
		return nil
	case <-waitCtx.Done():
	}
	if s.life.Closing.Err() != nil {
		return errClosed
	}
	return ctx.Err()
}
