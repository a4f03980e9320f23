package quorum

import (
	"context"
	"slices"
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

	// undoPause is how long to wait before messages are repeated, unless the node answers again before.
	undoPause = 500 * time.Millisecond
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
}

// An undoList holds the undoings of one node. It is bounded by time: no undoing stays for longer
// than undoFor, and no more are added while the node does not answer, because nothing is sent to it
// then but one call at a time.
type undoList struct {
	mu      sync.Mutex
	all     []*undoing
	running bool // a goroutine works on the list

	retry chan struct{} // gets a value when the node answers again
}

// undoLater adds an undoing. The caller has entered the lifetime of the store.
func (n *node) undoLater(u undoing) {
	u.begin = n.quorum.now()
	l := &n.undo
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, &u)
	if !l.running {
		l.running = true
		n.quorum.life.Go(n.undoAll)
	}
}

// undoAll repeats the messages of the list until it is empty or the store is closed.
func (n *node) undoAll(context.Context) {
	closing, l := n.quorum.life.Closing, &n.undo
	for more := true; more; {
		select {
		case <-time.After(undoPause):
		case <-l.retry:
		case <-closing.Done():
			return
		}
		l.mu.Lock()
		due := l.all
		l.all = nil
		l.mu.Unlock()
		rest := slices.DeleteFunc(due, func(u *undoing) bool { return closing.Err() == nil && u.try(n) })
		l.mu.Lock()
		l.all = append(rest, l.all...)
		more = len(l.all) > 0
		l.running = more
		l.mu.Unlock()
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
	if done = answered && (u.lost == 0 || now-u.lost > lateFor) || now-u.begin > undoFor; done {
		n.quorum.undone(u.key, n.index)
	}
	return done
}
