package quorum

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// order returns the nodes in the order of a name. It is the same for all clients, also for those that
// know the servers under other names, or do not know all of them yet.
func (s *Store) order(name string) []*node {
	return slices.SortedFunc(slices.Values(s.nodes), func(a, b *node) int { return cmp.Compare(a.rank(name), b.rank(name)) })
}

// rank returns a number that depends on the server and on the name. It must never change.
func (n *node) rank(name string) uint32 {
	h := n.seed.Load()
	if h == 0 {
		return math.MaxUint32 // the server is not known yet
	}
	h = fnv1a(h, name)
	h = (h ^ h>>16) * 0x85ebca6b // similar names must have different orders
	return h ^ h>>13
}

// fnv1a continues an FNV-1a hash.
func fnv1a(h uint32, text string) uint32 {
	for i := 0; i < len(text); i++ {
		h = (h ^ uint32(text[i])) * 16777619
	}
	return h
}

// identify sets the identity of the node's server, from which its ranks follow.
func (n *node) identify(id string) { n.seed.Store(max(1, fnv1a(2166136261, id))) }

// identity returns a short text for the identity of the node's server, or nothing if it is not known yet.
func (n *node) identity() string {
	if h := n.seed.Load(); h > 0 {
		return strconv.FormatUint(uint64(h), 16)
	}
	return ""
}

// chooseBell returns the node at which an identity queues: the first one, in the order of the name, that is not
// down. An identity that is queued elsewhere moves there: with several bells, no waiter may get a majority.
func (se *session) chooseBell() int {
	order := se.store.order(se.key.name)
	up := slices.IndexFunc(order, func(n *node) bool { return !n.isDown() })
	return order[max(0, up)].index
}

// Wait blocks until a refused identity should ask again; see [store.Store]. The bell of the name
// wakes it. It returns nil at once if the identity does not wait.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.life.Usable(ctx); err != nil {
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
	return s.life.Usable(ctx)
}
