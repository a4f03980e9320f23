package zkstore

import (
	"container/heap"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// retryAfter is when a node that could not be removed is tried again.
	retryAfter = time.Second

	// lookAfter is the same for what the servers' clock, which is known to some milliseconds,
	// keeps a little longer.
	lookAfter = 20 * time.Millisecond
)

// A keeper ends what nobody renews or asks for, because the session, which lives on for
// others, does not; and it keeps the session alive while anything is held. It is one
// goroutine for all.
type keeper struct {
	s     *Store
	heap  claimHeap // with the store's mutex
	sweep sweep
	at    time.Time // when it looks again; likewise
	wake  chan struct{}
	quit  chan struct{}
	ended chan struct{}
}

func (k *keeper) start(s *Store) {
	k.s = s
	k.sweep.begin()
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
		for _, e := range due {
			if !k.end(e) {
				return
			}
		}
		if k.isSweepDue() && !k.await(func() { k.s.sweep() }) { // what fails is for the next
			return
		}
		switch silent := time.Since(asked); {
		case busy && !asking && silent >= k.s.beat():
			asking, asked = true, time.Now()
			go func() { // one at a time
				k.s.conn.Exists(k.s.root)
				answered <- struct{}{}
			}()
		case asking && silent > k.s.silence():
			k.s.dialer.drop() // another server may answer, and has as long
			asked = time.Now()
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

// An ending is a claim whose time is over, as it was at that moment: a renewal that is under
// way may still be in time, and raises the version of its node.
type ending struct {
	*claim
	version int32
	crowd   bool
}

// due takes what is over out of the heap, and says when to look again, and whether anything
// is held or waited for in the session.
func (k *keeper) due(now time.Time) (due []ending, next time.Duration, busy bool) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	for len(k.heap) > 0 && !k.heap[0].end.After(now) {
		c := k.heap[0]
		heap.Pop(&k.heap)
		if k.s.mine[c.key] == c {
			delete(k.s.mine, c.key) // from here on nobody can renew it
		}
		due = append(due, ending{c, c.version, c.crowd})
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
func (k *keeper) end(e ending) bool {
	var err error
	if !k.await(func() { err = k.s.expire(e) }) {
		return false
	}
	if err != nil {
		k.again(e.claim, err)
	}
	return true
}

// await waits until something is done. It is false when the keeper has to end.
func (k *keeper) await(do func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
		return true
	case <-k.quit:
		return false
	}
}

func (k *keeper) isSweepDue() bool {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.sweep.due < sweepBatch {
		return false
	}
	k.sweep.due -= sweepBatch
	return true
}

// again lets a claim that could not be ended come later, unless it was renewed meanwhile.
func (k *keeper) again(c *claim, err error) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if c.index >= 0 {
		return
	}
	after := retryAfter
	if errors.Is(err, errTooEarly) {
		after = lookAfter
	}
	c.end = time.Now().Add(after)
	k.put(c)
}

// expire removes the node of a claim, unless it was renewed in the last moment, or another
// session has taken it over.
func (s *Store) expire(e ending) error {
	c := e.claim
	if c.kept {
		return s.expireKept(c)
	}
	found, stat, err := s.conn.Exists(c.path())
	if err != nil || !found || stat.EphemeralOwner != s.currentSession() {
		return err
	}
	err = s.removeNode(c.parent, c.node, e.version, e.crowd)
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrBadVersion) {
		return nil
	}
	return err
}

var errTooEarly = errors.New("by the clock of the servers its time is not over yet")

// expireKept removes what a release kept. A look does that if the servers' clock says so.
func (s *Store) expireKept(c *claim) error {
	q, err := s.lookAt(c.parent)
	if err != nil || q == nil {
		return err
	}
	if len(q.nodes) == 0 {
		s.conn.Delete(c.parent, -1) // fails if somebody comes
		return nil
	}
	if i := q.find(c.id); i >= 0 && q.nodes[i].kept {
		return errTooEarly
	}
	return nil
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
