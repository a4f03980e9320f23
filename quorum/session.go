package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// minSweep is the number of sessions from which ended ones are searched for.
const minSweep = 1024

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
	refs  int // calls in flight; under Store.mu
	name  *name

	mu      sync.Mutex
	seats   []seat
	want    want
	attempt *attempt      // the Acquire in progress; nil if there is none
	idle    chan struct{} // closed when that has ended; nil if no other call waits for it

	// The wait.
	bell    int           // the node whose queue it is in
	woken   bool          // the bell has woken it since it was refused
	retryAt time.Duration // when to ask again if the bell does not wake it
	splits  int           // consecutive attempts that gave votes back and found no holder

	// The lease, for repeated requests, renewals and repairs.
	held  bool
	req   store.Request // as the nodes were asked
	ttl   time.Duration // longest TTL that was requested
	first int64         // newest block of tokens
	last  int64
	floor int64         // later tokens must be above this
	until time.Duration // when the lease, or the place in the queues, ends

	completing bool // completeLater runs
}

// A seat is what a client knows about one identity at one node. All messages that create or end a
// vote are sent by one goroutine, each when the previous one was answered or has failed: the rule
// Order.
type seat struct {
	busy    bool // it has messages to send, or waits for its turn
	sending bool // it has its turn

	// What to send next, in this order.
	end    *ending
	ask    *attempt
	repair bool

	left    bool // the node may have a vote of the identity, or a place in its queue
	granted bool // it has answered that it has the vote, and no message that ends it was sent since
	queued  bool // it has answered that it has a place
	unheard bool // an Acquire was not answered, and may be executed late
	barred  bool // a message that ends the vote may be executed at any time, so no vote counts

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
		se = &session{store: s, key: key, seats: make([]seat, len(s.nodes)), name: s.nameOf(name)}
		for i := range se.seats {
			se.seats[i].left, se.seats[i].granted = foreign, foreign
		}
		if len(s.sessions) >= s.sweepAt {
			s.sweep()
		}
		s.sessions[key] = se
	}
	se.refs++
	return se
}

// find returns the session of an identity, or nil if there is none.
func (s *Store) find(name string, id store.ID) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[sessionKey{name, id}]
}

func (s *Store) shut(se *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	se.refs--
	s.forget(se)
}

// forget removes a session that is no longer needed. The caller holds the mutex of the store.
func (s *Store) forget(se *session) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.refs > 0 || se.want != wantNothing {
		return
	}
	for i := range se.seats {
		if t := &se.seats[i]; t.busy || t.barred {
			return
		}
	}
	s.drop(se)
}

// undone records that nothing of an identity is left at a node, and that no message about it can be
// executed any more: from then on the node can be used again.
func (s *Store) undone(key sessionKey, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if se := s.sessions[key]; se != nil {
		se.mu.Lock()
		t := &se.seats[i]
		t.barred, t.unheard, t.left = false, false, false
		se.mu.Unlock()
		s.forget(se)
	}
}

// drop removes a session. The caller holds the mutex of the store.
func (s *Store) drop(se *session) {
	if s.sessions[se.key] != se {
		return
	}
	delete(s.sessions, se.key)
	se.name.sessions--
	se.name.used = s.now()
}

// sweep removes the sessions of leases and waits that their callers did not end.
func (s *Store) sweep() {
	now := s.now()
	for _, se := range s.sessions {
		se.mu.Lock()
		over := se.refs == 0 && now > se.until+s.caps.Heartbeat &&
			!slices.ContainsFunc(se.seats, func(t seat) bool { return t.barred })
		se.mu.Unlock()
		if over {
			s.drop(se)
		}
	}
	s.sweepAt = max(minSweep, 2*len(s.sessions))
}

// isValid reports whether the lease is valid.
func (se *session) isValid() bool { return se.held && isValid(se.store.now(), se.until) }

// hasVote reports whether the vote of a node counts for the lease.
func (se *session) hasVote(i int) bool {
	t := &se.seats[i]
	return countsVote(t.granted, t.end != nil, t.barred)
}

// setWant changes what the identity wants.
func (se *session) setWant(w want) {
	se.want = w
	for i := range se.seats {
		se.settle(i)
	}
}

// settle ends what a node has and the identity does not want, and requests the vote that a lease does
// not have.
func (se *session) settle(i int) {
	t := &se.seats[i]
	switch {
	case t.end != nil || t.barred || se.attempt != nil:
	case t.left && (se.want == wantNothing || se.want == wantPlace && (t.granted || t.queued && i != se.bell)):
		t.end = leave
		se.drive(i)
	case se.held && !t.granted && !t.busy && !se.completing:
		se.completing = true
		se.completeLater(leastRepairPause)
	}
}

const (
	leastRepairPause = time.Millisecond
	mostRepairPause  = time.Second
)

// completeLater requests the votes that a lease does not have, after a pause. A node that refused the
// request usually had not received the release of the previous holder yet. The pause grows, and then
// the votes are requested with each renewal.
func (se *session) completeLater(pause time.Duration) {
	first := se.first
	time.AfterFunc(pause, func() {
		if !se.store.life.Enter() {
			return
		}
		defer se.store.life.Leave()
		se.mu.Lock()
		defer se.mu.Unlock()
		missing := false
		for i := range se.seats {
			if t := &se.seats[i]; se.first == first && !t.granted && !t.barred {
				missing = true
				se.repair(i)
			}
		}
		if se.completing = missing && pause < mostRepairPause; se.completing {
			se.completeLater(4 * pause)
		}
	})
}

// repair requests the vote of a node for a lease that is valid.
func (se *session) repair(i int) {
	if t := &se.seats[i]; se.attempt == nil && se.isValid() && !t.granted && !t.barred {
		t.repair = true
		se.drive(i)
	}
}

// drive makes a goroutine send the messages of a seat when it is its turn. The caller holds the mutex
// and has entered the lifetime of the store.
func (se *session) drive(i int) {
	if se.seats[i].busy {
		return
	}
	se.seats[i].busy = true
	se.store.life.Add()
	se.name.mu.Lock()
	defer se.name.mu.Unlock()
	l := &se.name.at[i]
	if l.busy {
		l.next = append(l.next, se)
		return
	}
	l.busy = true
	se.run(i)
}

// isBlocked reports whether a message to a node would have to wait for its turn.
func (se *session) isBlocked(i int) bool {
	se.name.mu.Lock()
	defer se.name.mu.Unlock()
	return se.name.at[i].busy
}

// run sends the messages of a seat, and those of the seats that wait for their turn, in the background.
func (se *session) run(i int) {
	s := se.store
	s.workers.run(s.life.Closing, func() {
		for more := true; more; {
			if se.send(i) {
				s.mu.Lock()
				s.forget(se)
				s.mu.Unlock()
			}
			l := &se.name.at[i]
			se.name.mu.Lock()
			if more = len(l.next) > 0; more {
				se, l.next = l.next[0], l.next[1:]
				se.name.mu.Unlock()
			} else {
				l.busy = false
				se.name.mu.Unlock()
			}
			s.life.Leave()
		}
	})
}

// send sends messages of a seat until there are none. It reports whether the session may be over.
func (se *session) send(i int) (over bool) {
	se.mu.Lock()
	defer se.mu.Unlock()
	t := &se.seats[i]
	t.sending = true
	for {
		switch {
		case t.end != nil:
			se.sendEnd(i)
		case t.ask != nil:
			se.sendAcquire(i)
		case t.repair:
			se.sendRepair(i)
		default:
			t.busy, t.sending = false, false
			return se.want == wantNothing
		}
		se.settle(i)
	}
}

// A reply is the answer of a node to an Acquire.
type reply struct {
	answer  store.Answer
	exclude error // why a grant does not count
	err     error
}

// acquireAt sends an Acquire to a node, and records what the node has then. It unlocks the mutex meanwhile.
func (se *session) acquireAt(i int, req store.Request) (r reply) {
	n, t := se.store.nodes[i], &se.seats[i]
	if t.barred {
		return reply{err: errBarred}
	}
	before := t.left
	t.left = true
	se.mu.Unlock()
	r.err = n.call(&n.asks, func(ctx context.Context) (err error) {
		if r.answer, err = n.Acquire(ctx, req); err == nil && r.answer.Granted() {
			r.exclude = n.counts(ctx)
		}
		return err
	})
	se.mu.Lock()
	switch {
	case isUnsent(r.err):
		t.left = before
	case r.err != nil:
		t.unheard = t.unheard || mayBeLate(r.err)
	case r.answer.Granted():
		t.granted, t.queued = true, false
		t.recorded = r.answer.Token + int64(r.answer.Tokens) - 1
	default:
		t.granted, t.queued = false, req.Queue
		t.left = req.Queue || t.unheard
	}
	return r
}

// nearby is by how much the token of a node may be above the last one of the client: some seconds, if
// counters follow clocks in microseconds.
const nearby = 4_000_000

// sendAcquire sends the Acquire of an attempt. It unlocks the mutex meanwhile.
func (se *session) sendAcquire(i int) {
	t := &se.seats[i]
	a, req := t.ask, t.ask.req
	t.ask, req.Queue = nil, i == t.ask.bell
	// A store may not push a grant to a waiter that has a floor.
	if !req.Queue || !se.name.isCrowded(a.begin) {
		req.Floor = a.floor
	}
	// The other nodes choose the token of the bell, unless its clock is far ahead.
	if a.bell >= 0 && a.votes[a.bell].state == granted && a.floor > 0 && a.votes[a.bell].first-a.floor < nearby {
		req.Floor = max(req.Floor, a.votes[a.bell].first-1)
	}
	a.deliver(i, se.acquireAt(i, req))
}

// sendEnd sends a message that ends what a node has. It unlocks the mutex meanwhile.
func (se *session) sendEnd(i int) {
	s, n, t := se.store, se.store.nodes[i], &se.seats[i]
	e, had := t.end, t.granted
	t.end, t.granted, t.queued = nil, false, false
	if !t.left && e.further == nil {
		e.deliver(i, errNothing)
		return
	}
	if e.further != nil && !had && !t.barred { // the name is kept closed: this node shall take part
		had = se.acquireAt(i, *e.further).answer.Granted()
		t.granted = false
	}
	var err error
	if t.barred { // it was handed to the list before
		err = errBarred
	} else {
		se.mu.Unlock()
		err = n.call(&n.others, func(ctx context.Context) error { return e.at(ctx, n, se.key, had) })
		se.mu.Lock()
	}
	answered := err == nil || isAnswer(err)
	if answered && !t.unheard {
		t.left = false
	} else if !t.barred {
		u := undoing{key: se.key, end: e, had: had}
		if t.unheard || mayBeLate(err) {
			u.lost = s.now()
		}
		t.barred = true
		n.undoLater(u)
	}
	if !had && answered {
		err = errNothing // so it is not known whether a vote was ended
	}
	e.deliver(i, err)
}

// sendRepair requests the vote of a node for the lease. It unlocks the mutex meanwhile.
func (se *session) sendRepair(i int) {
	t := &se.seats[i]
	t.repair = false
	if t.granted || !se.isValid() {
		return
	}
	se.acquireAt(i, se.further())
	if t.left && se.attempt == nil && !se.isValid() { // the lease has ended meanwhile
		t.end = leave
	}
}

// further returns the request for a further vote of the lease. It asks for the lease's own block,
// so that all nodes report the same tokens.
func (se *session) further() store.Request {
	req := se.req
	req.TTL, req.Floor, req.Tokens, req.Queue = ttlAtNodes(se.ttl), se.first-1, int(se.last-se.first+1), false
	return req
}
