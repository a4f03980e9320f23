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
// At each node, one identity after the other sends its messages about the name. Otherwise a request
// could overtake the release of the lease before it, and be refused. An identity that waits for its turn
// at a slow node has often ended by then, and sends nothing to it.
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
	at []line
}

// A line is that of one node.
type line struct {
	busy bool
	next []*session
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
