package quorum

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// minSweep is the number of sessions from which ended ones are searched for.
	minSweep = 1024

	// The pauses before votes that a lease does not have are requested again. Later, that is done with each renewal.
	leastRepairPause = time.Millisecond
	mostRepairPause  = time.Second

	// rememberFor is how long a name is remembered after its last use, and for how long it counts as contended.
	rememberFor = time.Second
)

type sessionKey struct {
	name string
	id   store.ID
}

// want is what an identity wants from the nodes. What a node has beyond that is given back.
type want uint8

const (
	wantNothing want = iota // it was refused and does not wait, or it was released or left
	wantPlace               // it waits in the queue of the bell
	wantVotes               // it asks for votes, or holds a lease
)

// A session is what the store knows about one identity. It exists while the identity wants
// something, and while messages of it are in flight. Its methods, and those of attempt that take no
// context, are called with the mutex locked.
type session struct {
	store *Store
	key   sessionKey
	name  *name
	turn  chan struct{} // has a value while an Acquire is in progress
	refs  atomic.Int32  // calls and messages in flight

	mu      sync.Mutex
	seats   []seat
	want    want
	attempt *attempt // the Acquire in progress; nil if there is none, or if the identity was released meanwhile

	// The wait.
	bell   int  // the node whose queue it is in
	woken  bool // the bell has woken it since it was refused
	splits int  // consecutive attempts that gave votes back and found no holder

	// The lease, for repeated requests, renewals and repairs.
	held  bool
	req   store.Request // as the nodes were asked
	ttl   time.Duration // longest TTL that was requested
	until time.Duration // when the lease, or the place in the queues, ends
	floor int64         // later tokens must be above this

	first, last int64 // newest block of tokens

	closing store.State // of the Keep that it was released with while it was valid; Held if it was requested again

	repairing   bool          // the pause before the next repair has begun
	repairPause time.Duration // the one after that
}

// A seat is what a client knows about one identity at one node.
type seat struct {
	posted int // messages that are queued or in flight
	ends   int // those that end the vote and are queued

	left    bool          // the node may have a vote of the identity, or a place in its queue
	granted bool          // it has answered that it has the vote, and nothing is known about the end of that vote
	queued  bool          // it has answered that it has a place
	kept    store.State   // of the record that the last message that ended its vote left; Held if there is none
	without bool          // that message found no vote
	lost    time.Duration // when a message was last lost that may be executed late; 0 if none was

	// The message that ends what the node has, from when it is sent until nothing is left to do: see Undoing in the
	// package documentation. The identity does not use the node meanwhile.
	end       *ending
	begin     time.Duration // when it was sent first
	repeating bool          // the pause before it is repeated has begun

	recorded int64 // if granted: the counter of the node is at least this
}

// open returns the session of an identity, and keeps it until shut is called. A foreign identity may
// belong to another handle: if nothing is known about it, every node may have a vote.
func (s *Store) open(name string, id store.ID, foreign bool) *session {
	key := sessionKey{name, id}
	s.mu.Lock()
	defer s.mu.Unlock()
	se := s.sessions[key]
	if se == nil {
		se = &session{store: s, key: key, name: s.nameOf(name), turn: make(chan struct{}, 1)}
		se.seats = slices.Repeat([]seat{{left: foreign, granted: foreign}}, len(s.nodes))
		if len(s.sessions) >= s.sweepAt { // some callers do not end their leases and waits
			for _, old := range s.sessions {
				s.forget(old)
			}
			s.sweepAt = max(minSweep, 2*len(s.sessions))
		}
		s.sessions[key] = se
	}
	se.refs.Add(1)
	return se
}

// find returns the session of an identity, or nil if there is none.
func (s *Store) find(name string, id store.ID) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[sessionKey{name, id}]
}

// shut ends a call or a message of a session, which is removed if it is over.
func (s *Store) shut(se *session) {
	se.refs.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(se)
}

// forget removes a session that is no longer needed. The caller holds the mutex of the store.
func (s *Store) forget(se *session) {
	se.mu.Lock()
	defer se.mu.Unlock()
	over := se.refs.Load() == 0 && (se.want == wantNothing || s.now() > se.until+s.caps.Heartbeat) &&
		!slices.ContainsFunc(se.seats, func(t seat) bool { return t.end != nil })
	if over && s.sessions[se.key] == se {
		delete(s.sessions, se.key)
		se.name.sessions--
		se.name.used = s.now()
	}
}

// isValid reports whether the lease is valid.
func (se *session) isValid() bool { return se.held && isValid(se.store.now(), se.until) }

// hasVote reports whether the vote of a node counts for the lease.
func (se *session) hasVote(i int) bool {
	t := &se.seats[i]
	return countsVote(t.granted, t.ends > 0, t.end != nil)
}

// settle ends what a node has and the identity does not want, and requests the vote that a lease does not have.
func (se *session) settle(i int) {
	t := &se.seats[i]
	switch {
	case t.ends > 0 || t.end != nil || se.attempt != nil:
	case t.left && (se.want == wantNothing || se.held && !se.isValid() || se.want == wantPlace && (t.granted || t.queued && i != se.bell)):
		se.end(i, leave)
	case t.posted == 0 && se.held && !t.granted && !se.repairing && se.repairPause <= mostRepairPause:
		// A node that refused the request usually had not received the release of the previous holder yet.
		se.repairing = true
		se.later(se.repairPause, func() {
			se.repairing = false
			se.repair()
		})
		se.repairPause *= 4
	}
}

func (se *session) settleAll() {
	for i := range se.seats {
		se.settle(i)
	}
}

// later calls f after a pause, with the mutex locked, unless the store is closed by then.
func (se *session) later(pause time.Duration, f func()) {
	time.AfterFunc(pause, func() {
		if !se.store.life.Enter() {
			return
		}
		defer se.store.life.Exit()
		se.mu.Lock()
		defer se.mu.Unlock()
		f()
	})
}

// repair requests the votes that a valid lease does not have.
func (se *session) repair() {
	for i := range se.seats {
		if t := &se.seats[i]; t.posted == 0 && se.attempt == nil && se.isValid() && !t.granted && t.end == nil && !se.name.isStuck(se.store.nodes[i]) {
			se.post(i, func() {
				if !t.granted && se.isValid() {
					se.acquireAt(i, se.further(ttlAtNodes(se.ttl)))
				}
			})
		}
	}
}

// post queues a message to a node: send is called in the background, with the mutex locked, when the messages
// before it were answered or have failed. That is the rule Order. The caller has entered the lifetime of the store.
func (se *session) post(i int, send func()) {
	s, t := se.store, &se.seats[i]
	t.posted++
	se.refs.Add(1)
	se.name.post(s, i, func() {
		defer s.shut(se)
		se.mu.Lock()
		defer se.mu.Unlock()
		send()
		t.posted--
		se.settle(i)
	})
}

// An acquired is the reply of a node to an Acquire.
type acquired struct {
	store.Answer
	exclude error // why a grant does not count
}

// acquireAt sends an Acquire to a node, and records what the node has then. It unlocks the mutex meanwhile.
func (se *session) acquireAt(i int, req store.Request) (a acquired, err error) {
	n, t := se.store.nodes[i], &se.seats[i]
	if t.end != nil {
		return a, errBarred
	}
	before, kept := t.left, t.kept
	t.left, t.kept = true, store.Held
	se.mu.Unlock()
	late, err := n.call(&n.asks, func(ctx context.Context) (err error) {
		if a.Answer, err = n.Acquire(ctx, req); err == nil {
			a.exclude = n.counts(ctx) // also if it was refused: the bell depends on the servers
		}
		return err
	})
	se.mu.Lock()
	switch {
	case isUnsent(err):
		t.left, t.kept = before, kept
	case late:
		t.lost = se.store.now()
	case err != nil:
	case a.Granted():
		t.granted, t.queued = true, false
		t.recorded = a.Token + int64(a.Tokens) - 1
	default:
		t.granted, t.queued = false, req.Queue
		t.left = req.Queue || t.lost > 0
	}
	return a, err
}

// further returns the request for a further vote of the lease. It asks for the lease's own block,
// so that all nodes report the same tokens.
func (se *session) further(ttl time.Duration) store.Request {
	req := se.req
	req.TTL, req.Floor, req.Tokens, req.Queue = ttl, se.first-1, int(se.last-se.first+1), false
	return req
}

// A name is what the client remembers of a name.
//
// Messages about the name are sent to a node one after the other, in the order of posting. Otherwise a
// request could overtake the release of the lease before it, and be refused. A request has often ended
// when its turn comes at a slow node, and is not sent then.
type name struct {
	sessions int           // that use it; under Store.mu
	used     time.Duration // when the last of them ended; under Store.mu

	last    atomic.Int64 // a token that a majority has recorded; the next request asks for higher ones
	crowded atomic.Int64 // until when it counts as contended: a request was refused, or found waiters

	mu sync.Mutex
	at []line // of messages to each node
}

type line struct {
	busy  bool
	since time.Duration // when the message in flight was sent
	next  []func()
}

// nameOf returns what is remembered of a name, for one more session. The caller holds the mutex.
func (s *Store) nameOf(text string) *name {
	now := s.now()
	if now >= s.sweepDue {
		maps.DeleteFunc(s.names, func(_ string, n *name) bool { return n.sessions == 0 && now-n.used > rememberFor })
		s.sweepDue = now + rememberFor
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
	s.run(func() {
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
