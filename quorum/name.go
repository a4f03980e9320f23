package quorum

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// rememberFor is how long a name is remembered after its last use, and for how long it counts as
// contended.
const rememberFor = time.Second

// A name is what the client remembers of a name.
//
// Messages about the name are sent to a node one after the other, in the order of posting. Otherwise a
// request could overtake the release of the lease before it, and be refused. A request has often ended
// when its turn comes at a slow node, and is not sent then.
type name struct {
	sessions int           // that use it; under Store.mu
	used     time.Duration // when the last of them ended; under Store.mu

	// last is a token that a majority has recorded. The next request asks for higher ones, so that
	// nodes that have not seen all requests choose the same ones as the others.
	last atomic.Int64

	// crowded is until when the name counts as contended: a request was refused, or found waiters. A
	// request for such a name asks the bell first. If it asked all nodes at once, it would take votes
	// that the next waiter needs, and give them back.
	crowded atomic.Int64

	mu sync.Mutex
	at []line // of each node
}

// A line has the messages to one node that are sent one after the other.
type line struct {
	busy  bool
	since time.Duration // when the message in flight was sent
	next  []func()
}

// nameOf returns what is remembered of a name, for one more session. The caller holds the mutex.
func (s *Store) nameOf(text string) *name {
	now := s.now()
	if now >= s.sweepNames {
		maps.DeleteFunc(s.names, func(_ string, n *name) bool { return n.sessions == 0 && now-n.used > rememberFor })
		s.sweepNames = now + rememberFor
	}
	n := s.names[text]
	if n == nil {
		n = &name{at: make([]line, len(s.nodes))}
		s.names[text] = n
	}
	n.sessions++
	return n
}

func (n *name) isCrowded(now time.Duration) bool { return int64(now) < n.crowded.Load() }

func (n *name) noteCrowd(now time.Duration) { n.crowded.Store(int64(now + rememberFor)) }

// post calls send in the background when its turn comes at a node.
func (n *name) post(s *Store, i int, send func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &n.at[i]
	if l.busy {
		l.next = append(l.next, send)
		return
	}
	l.busy, l.since = true, s.now()
	s.workers.run(s.life.Closing, func() {
		for ; send != nil; send = n.next(s, l) {
			send()
		}
	})
}

// isStuck reports whether a message to a node would have to wait for one that is not answered.
func (n *name) isStuck(to *node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &n.at[to.index]
	return l.busy && (to.isDown() || to.quorum.now()-l.since > to.quorum.opts.Timeout)
}

// next returns the next message of a line, or nil if there is none.
func (n *name) next(s *Store, l *line) (send func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.busy = len(l.next) > 0; l.busy {
		send, l.next, l.since = l.next[0], l.next[1:], s.now()
	}
	return send
}
