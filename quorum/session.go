package quorum

import (
	"context"
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

// A session is what the store knows about one identity. It exists while calls for the identity
// are in flight, while it holds the name and while it waits.
type session struct {
	key  sessionKey
	refs int // calls in flight; under Store.mu

	mu      sync.Mutex
	asked   uint16 // nodes that may have a vote, as a bit set; 0 if unknown
	unheard uint16 // nodes that were asked and have not answered, as a bit set
	voted   uint16 // nodes that gave the lease their vote, as a bit set
	lanes   []lane
	tainted time.Duration // until when one of the lanes is tainted; 0 if none is
	over    bool          // it was released or left, and is no longer used

	// The lease, for repairs.
	held  bool
	req   store.Request // as requested
	ttl   time.Duration // of the lease
	first int64         // newest block of tokens
	last  int64
	floor int64         // later tokens must be above this
	until time.Duration // when it ends unless it is renewed
	rest  *time.Timer   // fires when to request the missing votes: see completeLater
	baton *baton        // nil if all votes have the identity of the session
	under uint16        // nodes whose votes have the identity of the baton, as a bit set
	ended []store.ID    // batons that the session has ended
	stray uint16        // nodes whose votes may have the identity of the baton or of the session, as a bit set

	// The wait.
	waiting bool
	bell    int           // the node whose queue it is in
	queued  bool          // it is in that queue
	woken   bool          // the bell has woken it since it was queued
	retryAt time.Duration // if not queued: when to ask again
	splits  int           // consecutive attempts that ended without a holder

	asksOthers time.Duration // when to ask other nodes too, even if the bell is likely to refuse
}

// A lane orders the messages of one identity to one node: see the rule Order.
type lane struct {
	busy bool
	next []chan struct{}

	// A message that ends a vote is unanswered. It may arrive at any time, so votes of the node
	// for this identity do not count.
	tainted time.Duration // until when; 0 if not
}

// taintedFor is how long an unanswered message may still arrive.
const taintedFor = 10 * time.Minute

// noteEnded records how a node answered a message that ends its vote. If the node did not answer,
// the message may arrive at any time.
func (se *session) noteEnded(i int, now time.Duration, err error) {
	if err == nil || isAnswer(err) || unsent(err) {
		return
	}
	se.mu.Lock()
	se.lanes[i].tainted, se.tainted = now+taintedFor, now+taintedFor
	se.mu.Unlock()
}

// isTainted reports whether votes of a node do not count.
func (se *session) isTainted(i int, now time.Duration) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return now < se.lanes[i].tainted
}

// reserve takes the next turn on a lane. It is called before the goroutine that sends the message
// starts, so that messages are in the order of calls. The turn begins when the channel is closed,
// or at once if it is nil.
func (se *session) reserve(i int) chan struct{} {
	se.mu.Lock()
	defer se.mu.Unlock()
	l := &se.lanes[i]
	if !l.busy {
		l.busy = true
		return nil
	}
	turn := make(chan struct{})
	l.next = append(l.next, turn)
	return turn
}

// await waits for a turn. If ctx ends first, it passes the turn on and returns false.
func (se *session) await(ctx context.Context, i int, turn chan struct{}) bool {
	if turn == nil {
		return true
	}
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	se.mu.Lock()
	l := &se.lanes[i]
	for n, t := range l.next {
		if t == turn {
			l.next = append(l.next[:n], l.next[n+1:]...)
			se.mu.Unlock()
			return false
		}
	}
	se.mu.Unlock()
	se.pass(i) // the turn began at the same moment
	return false
}

// pass ends a turn.
func (se *session) pass(i int) {
	se.mu.Lock()
	defer se.mu.Unlock()
	l := &se.lanes[i]
	if len(l.next) == 0 {
		l.busy = false
		return
	}
	turn := l.next[0]
	l.next = l.next[1:]
	close(turn)
}

// open returns the session of an identity, and keeps it until shut is called.
func (s *Store) open(name string, id store.ID) *session {
	key := sessionKey{name, id}
	s.mu.Lock()
	defer s.mu.Unlock()
	se := s.sessions[key]
	if se == nil {
		se = &session{key: key, lanes: make([]lane, len(s.nodes))}
		if len(s.sessions) >= s.sweepAt {
			s.sweep()
		}
		s.sessions[key] = se
	}
	se.refs++
	return se
}

// keep is like open, for a session that is already open.
func (s *Store) keep(se *session) {
	s.mu.Lock()
	se.refs++
	s.mu.Unlock()
}

func (s *Store) shut(se *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if se.refs--; se.refs > 0 {
		return
	}
	se.mu.Lock()
	ended := !se.held && !se.waiting && (se.over || se.tainted < s.now())
	se.mu.Unlock()
	if ended && s.sessions[se.key] == se { // a reply may come after the identity was used again
		delete(s.sessions, se.key)
	}
}

// sweep removes sessions of leases and waits that their callers did not end.
func (s *Store) sweep() {
	now := s.now()
	for key, se := range s.sessions {
		if se.refs > 0 {
			continue
		}
		se.mu.Lock()
		over := now > max(se.until+s.caps.Heartbeat, se.tainted)
		se.mu.Unlock()
		if over {
			delete(s.sessions, key)
		}
	}
	s.sweepAt = max(minSweep, 2*len(s.sessions))
}

// block returns the tokens of a lease that is held, or 0 if there is none.
func (se *session) block() (first, last int64) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if !se.held {
		return 0, 0
	}
	return se.first, se.last
}

// find returns the session of an identity, or nil if there is none.
func (s *Store) find(name string, id store.ID) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[sessionKey{name, id}]
}

// lengthen records that a renewal is about to be sent, and returns the TTL to send. It is the
// longest TTL so far, because renewals of several callers arrive in any order, and none of them
// may shorten the lease.
func (se *session) lengthen(ttl time.Duration) time.Duration {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.held {
		se.ttl = max(se.ttl, ttl)
		return se.ttl
	}
	return ttl
}

// extended records that a lease was extended.
func (se *session) extended(until time.Duration, out *store.Renewed, floor int64) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if !se.held {
		return
	}
	if out.Tokens > 0 {
		se.first, se.last = out.Token, out.Token+int64(out.Tokens)-1
	}
	se.until, se.floor = max(se.until, until), max(se.floor, floor, se.last)
}

// lost records that the nodes have lost a lease.
func (se *session) lost(now time.Duration) {
	if se == nil {
		return
	}
	se.mu.Lock()
	se.until = min(se.until, now)
	se.mu.Unlock()
}

// further returns the request for a further vote of a lease, and whether the lease is valid. The
// request asks for the lease's own block, so that all nodes report the same tokens. A node that
// grants fewer tokens has to record floor too.
func (se *session) further(now time.Duration) (req store.Request, floor int64, valid bool) {
	se.mu.Lock()
	defer se.mu.Unlock()
	req = se.req
	req.TTL, req.Floor, req.Tokens, req.Queue = ttlAtNodes(se.ttl), se.first-1, int(se.last-se.first+1), false
	return req, se.floor, se.held && now < se.until
}

// use records that an identity is in use.
func (se *session) use() {
	se.mu.Lock()
	se.over = false
	se.mu.Unlock()
}

// noteAsked records that a node may have a vote.
func (se *session) noteAsked(i int) {
	se.mu.Lock()
	se.asked |= 1 << i
	se.unheard |= 1 << i
	se.mu.Unlock()
}

// noteAnswer records that a node has answered the request for its vote.
func (se *session) noteAnswer(i int) {
	se.mu.Lock()
	se.unheard &^= 1 << i
	se.mu.Unlock()
}

// isUnheard reports whether a node has not answered the request for its vote.
func (se *session) isUnheard(i int) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.unheard&(1<<i) != 0
}

// noteVote records that a node has a vote for the lease. It returns false if the lease has ended.
func (se *session) noteVote(i int) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	se.voted |= 1 << i
	return se.held
}

// noteLeft records that a vote is about to be given back, so that it does not count for the lease.
func (se *session) noteLeft(i int) {
	se.mu.Lock()
	se.voted &^= 1 << i
	se.mu.Unlock()
}

// hasVote reports whether a node gave the lease its vote. It returns true if nothing is known
// about the lease.
func (se *session) hasVote(i int) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return !se.held || se.voted&(1<<i) != 0
}

// hasAsked reports whether this handle has asked any node for a vote.
func (se *session) hasAsked() bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.asked != 0
}

// end records that an identity neither holds the name nor waits for it. It returns the nodes that
// may have a vote, and those that gave the lease their vote, as bit sets.
func (se *session) end(nodes int) (asked, voted uint16) {
	se.mu.Lock()
	defer se.mu.Unlock()
	asked, voted = se.asked, se.voted
	if asked == 0 {
		asked = 1<<nodes - 1
	}
	if !se.held {
		voted = asked
	}
	se.held, se.waiting, se.queued, se.over = false, false, false, true
	if se.rest != nil {
		se.rest.Stop()
	}
	return asked, voted
}

// stopRest stops the timer of completeLater, and reports whether it was running.
func (se *session) stopRest() bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.rest != nil && se.rest.Stop()
}
