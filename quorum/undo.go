package quorum

import (
	"context"
	"sync"
	"time"
)

const (
	// lateFor is how long a request that was not answered may still arrive at a node that answers
	// others: a connection that was cut may deliver it late.
	lateFor = time.Minute

	// undoFor is how long to go on with a node that does not answer. A server that hangs for longer
	// may execute a request then, and have a vote without a holder until its TTL is over.
	undoFor = 10 * time.Minute

	leastUndoPause = 250 * time.Millisecond
	mostUndoPause  = time.Second
)

// An undoing ends what a node may have of an identity. The message is repeated until the node answers
// it, and as long as a message that was not answered may be executed late. The identity does not use the
// node meanwhile.
type undoing struct {
	key   sessionKey
	end   *ending
	had   bool          // the node had a vote
	begin time.Duration // when it began
	lost  time.Duration // when a message was sent last that was not answered; 0 if there is none
	next  time.Duration
	pause time.Duration
}

// An undoList holds the undoings of one node. It is bounded by time: no undoing stays for longer
// than undoFor, and no more are added while the node does not answer, because nothing is sent to it
// then but one call at a time.
type undoList struct {
	mu      sync.Mutex
	all     []undoing
	running bool // a goroutine works on the list

	retry chan struct{} // gets a value when the node answers again
}

// undoLater adds an undoing. The caller has entered the lifetime of the store.
func (n *node) undoLater(u undoing) {
	u.begin = n.quorum.now()
	u.next, u.pause = u.begin, leastUndoPause
	l := &n.undo
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, u)
	if !l.running {
		l.running = true
		n.quorum.life.Go(n.undoAll)
	}
}

// undoAll works on the list until it is empty or the store is closed.
func (n *node) undoAll(context.Context) {
	s, l := n.quorum, &n.undo
	for {
		l.mu.Lock()
		if len(l.all) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		due := l.all
		l.all = nil
		l.mu.Unlock()
		var rest []undoing
		next := s.now() + mostUndoPause
		for _, u := range due {
			if u.next <= s.now() && s.life.Closing.Err() == nil {
				if u.try(n) {
					continue
				}
			}
			next = min(next, u.next)
			rest = append(rest, u)
		}
		l.mu.Lock()
		l.all = append(rest, l.all...)
		l.mu.Unlock()
		pause := time.NewTimer(max(next-s.now(), time.Millisecond))
		select {
		case <-pause.C:
		case <-l.retry:
			l.mu.Lock()
			for i := range l.all {
				l.all[i].next, l.all[i].pause = s.now(), leastUndoPause
			}
			l.mu.Unlock()
		case <-s.life.Closing.Done():
			pause.Stop()
			return
		}
	}
}

// try sends the message, and reports whether nothing is left to do.
func (u *undoing) try(n *node) (done bool) {
	sent := n.quorum.now()
	err := n.call(&n.others, func(ctx context.Context) error { return u.end.at(ctx, n, u.key, u.had) })
	now := n.quorum.now()
	answered := err == nil || isAnswer(err)
	if mayBeLate(err) {
		u.lost = sent
	}
	if answered && (u.lost == 0 || now-u.lost > lateFor) || now-u.begin > undoFor {
		n.quorum.undone(u.key, n.index)
		return true
	}
	u.next, u.pause = now+u.pause, min(2*u.pause, mostUndoPause)
	return false
}
