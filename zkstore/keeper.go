package zkstore

import (
	"container/heap"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

// retryAfter is when a node that could not be removed is tried again.
const retryAfter = time.Second

// A keeper ends what nobody renews or asks for, because the session, which lives on for
// others, does not; and it keeps the session alive while anything is held. It is one
// goroutine for all.
type keeper struct {
	s     *Store
	heap  claimHeap // with the store's mutex
	at    time.Time // when it looks again; likewise
	wake  chan struct{}
	quit  chan struct{}
	ended chan struct{}
}

func (k *keeper) start(s *Store) {
	k.s = s
	k.wake = make(chan struct{}, 1)
	k.quit = make(chan struct{})
	k.ended = make(chan struct{})
	go k.run()
}

func (k *keeper) stop() {
	close(k.quit)
	<-k.ended
}

// put notes a claim, or that its end has changed. It needs the mutex.
func (k *keeper) put(c *claim) {
	if c.index < 0 {
		heap.Push(&k.heap, c)
	} else {
		heap.Fix(&k.heap, c.index)
	}
	if c.end.Before(k.at) {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// remove needs the mutex.
func (k *keeper) remove(c *claim) {
	if c.index >= 0 {
		heap.Remove(&k.heap, c.index)
	}
}

func (k *keeper) run() {
	defer close(k.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	answered := make(chan struct{}, 1)
	var asked time.Time // when the servers were spoken to last
	asking := false
	for {
		due, next, busy := k.due(time.Now())
		for _, c := range due {
			if !k.end(c) {
				return
			}
		}
		switch silent := time.Since(asked); {
		case busy && !asking && silent >= k.s.beat():
			asking, asked = true, time.Now()
			go func() { // one at a time
				k.s.conn.Exists(k.s.root)
				answered <- struct{}{}
			}()
		case asking && silent > k.s.silence():
			k.s.dialer.drop() // another server may answer
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-k.wake:
		case <-answered:
			asking = false
		case <-k.quit:
			return
		}
	}
}

// due takes what is over out of the heap, and says when to look again, and whether anything
// is held or waited for in the session.
func (k *keeper) due(now time.Time) (due []*claim, next time.Duration, busy bool) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	for len(k.heap) > 0 && !k.heap[0].end.After(now) {
		c := k.heap[0]
		heap.Pop(&k.heap)
		if k.s.mine[c.key] == c {
			delete(k.s.mine, c.key) // from here on nobody can renew it
		}
		due = append(due, c)
	}
	next, busy = time.Hour, len(k.s.mine) > 0
	if len(k.heap) > 0 {
		next = k.heap[0].end.Sub(now)
	}
	if busy {
		next = min(next, k.s.beat())
	}
	k.at = now.Add(next)
	return due, next, busy
}

// end removes a node whose time is over. It is false when the keeper has to end.
func (k *keeper) end(c *claim) bool {
	done := make(chan error, 1)
	go func() { done <- k.s.expire(c) }()
	select {
	case err := <-done:
		if err != nil {
			c.end = time.Now().Add(retryAfter)
			k.s.mu.Lock()
			k.put(c)
			k.s.mu.Unlock()
		}
		return true
	case <-k.quit:
		return false
	}
}

// expire removes the node of a claim, unless another session has taken it over.
func (s *Store) expire(c *claim) error {
	if !c.kept {
		found, stat, err := s.conn.Exists(c.path())
		if err != nil || !found {
			return err
		}
		if stat.EphemeralOwner != s.currentSession() {
			return nil
		}
	} else if c.rec.state == store.Done {
		// Another may be in its place.
		_, err := s.lookAt(c.parent)
		return err
	}
	err := s.removeNode(c.parent, c.node, c.crowd)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// A claimHeap has what ends first on top.
type claimHeap []*claim

func (h claimHeap) Len() int           { return len(h) }
func (h claimHeap) Less(i, j int) bool { return h[i].end.Before(h[j].end) }

func (h claimHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *claimHeap) Push(x any) {
	c := x.(*claim)
	c.index = len(*h)
	*h = append(*h, c)
}

func (h *claimHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	c.index = -1
	return c
}
