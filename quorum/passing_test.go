//go:build !race

package quorum

import "time"

// This file extends the model by the rule Passed. The first node is the bell. The first client begins
// with a lease whose votes at the other nodes have an identity of their own, and the next clients wait
// at the bell. The last client does not wait, and asks all nodes.

// An mNote passes votes on.
type mNote struct {
	id         int8 // of the votes; 0 if there are none
	next, last int8 // tokens
	age        int8 // that the votes have at least, when they were passed on; for a holder, when it requested them
	sent       int8 // when the waiter sent its last request
}

// An mBell is the queue of a node, and the note of its holder.
type mBell struct {
	queue [mClients - 1]mWaiter
	note  mNote
}

type mWaiter struct {
	id    int8 // 0 if there is no waiter
	after int8 // token of the holder that refused it last
	sent  int8
}

func (c *mConfig) startPassing(s *mState) {
	cl := &s.clients[0]
	const shared = 100
	cl.phase, cl.until, cl.last, cl.highest, cl.token = mHolding, mTTL-c.aged, 1, 1, 1
	cl.baton = mNote{id: shared, next: 2, last: 4, age: -c.aged}
	s.granted, s.owner = 1, 0
	for i := range c.nodes {
		s.nodes[i] = mNode{counter: 4, id: shared, first: 1, last: 4, expires: mNodeTTL - c.aged, born: -100}
		cl.votes[i] = mVote{state: granted, first: 1, recorded: 4, voted: true}
	}
	s.nodes[0].id, s.nodes[0].last = cl.id, 1
	for k := range c.queued {
		w := &s.clients[k+1]
		w.phase, w.votes[0].state, w.attempts = mQueued, refused, 1
		s.nodes[0].bell.queue[k] = mWaiter{id: w.id}
	}
}

// waits reports whether a client waits at the bell if it is refused.
func (c *mConfig) waits(k int) bool { return k > 0 && k <= int(c.queued) }

// idAt returns the identity that the votes of a node have.
func (cl *mClient) idAt(i int) int8 {
	if i > 0 && cl.baton.id != 0 {
		return cl.baton.id
	}
	return cl.id
}

// ask queues a request that was refused, and removes one that was granted.
func (b *mBell) ask(n *mNode, m mMsg, answer state) {
	for i := range b.queue {
		switch w := &b.queue[i]; {
		case w.id != m.id:
		case answer == granted:
			b.remove(i)
			return
		default:
			w.after, w.sent = n.first, m.sent
			return
		}
	}
}

func (b *mBell) remove(i int) {
	copy(b.queue[i:], b.queue[i+1:])
	b.queue[len(b.queue)-1] = mWaiter{}
}

// wake grants the name to the first waiter, without a note.
func (c *mConfig) wake(s *mState, n *mNode) {
	n.bell.note = mNote{}
	if w := n.bell.queue[0]; w.id != 0 {
		c.push(s, n, w, mNote{})
	}
}

// servePass is the bell's side of passing votes on. It returns failed if the caller is not the holder.
func (c *mConfig) servePass(s *mState, n *mNode, m mMsg) state {
	w := n.bell.queue[0]
	switch {
	case n.id != m.id:
		return failed
	case n.first != m.first || w.id == 0 || w.after == n.first && !c.rules.off(noBefore):
		return refused
	}
	c.push(s, n, w, m.note)
	return granted
}

func (c *mConfig) push(s *mState, n *mNode, w mWaiter, note mNote) {
	note.sent = w.sent
	n.counter = max(n.counter, note.last) + 1
	n.id, n.first, n.last, n.expires = w.id, n.counter, n.counter, s.time+mNodeTTL
	n.bell.note = note
	n.bell.remove(0)
	c.send(s, int(w.id/8), 0, mMsg{kind: mPush, reply: true, id: w.id, first: n.first, sent: w.sent, note: note})
}

// receivePush lets a waiter receive a grant of the bell. Like a waiter at Redis, it ignores one for
// another request than its last one.
func (c *mConfig) receivePush(s *mState, k int, m mMsg) string {
	cl := &s.clients[k]
	if cl.phase != mQueued || m.id != cl.id || m.sent != cl.sent {
		return ""
	}
	cl.phase, cl.begin, cl.want, cl.chosen = mAsking, cl.sent, c.tokens, false
	v := &cl.votes[0]
	v.state, v.first, v.recorded, v.voted = granted, m.first, m.first, true
	if !c.rules.counts(time.Duration(s.time-s.nodes[0].born), mDelay) {
		v.state = uncounted
	}
	if m.note.id != 0 {
		return c.take(s, k, m.note)
	}
	c.askMore(s, k)
	return ""
}

// take lets a waiter hold the name with the votes that were passed on, if they count.
func (c *mConfig) take(s *mState, k int, note mNote) string {
	cl := &s.clients[k]
	begin := int8(c.rules.passedSince(time.Duration(note.sent), time.Duration(note.age)))
	if cl.votes[0].state != granted || begin+mTTL <= s.time || note.next > note.last {
		for i := 1; i < c.nodes; i++ {
			cl.seq++
			c.send(s, k, i, mMsg{kind: mLeave, seq: cl.seq, id: note.id})
		}
		c.askMore(s, k)
		return ""
	}
	cl.phase, cl.until, cl.token = mHolding, begin+mTTL, cl.votes[0].first
	cl.baton = mNote{id: note.id, next: note.next + 1, last: note.last, age: begin}
	for i := range c.nodes {
		cl.votes[i].voted = true
	}
	return c.grant(s, k, decision{won, int64(note.next), int64(note.next)})
}

// pass lets a holder pass its votes on. It does not use them afterwards.
func (c *mConfig) pass(s *mState, k int) {
	cl := &s.clients[k]
	note := cl.baton
	note.age = s.time - cl.baton.age
	cl.phase = mPassing
	c.call(s, k, 0, mMsg{kind: mPass, first: cl.token, note: note})
}

// passed lets a holder continue after it tried to pass its votes on: the bell did so (granted) or not
// (refused), or it is unknown.
func (c *mConfig) passed(s *mState, k int, outcome state) {
	cl := &s.clients[k]
	if outcome == refused || outcome == failed && c.rules.off(noForget) {
		c.release(s, k)
		return
	}
	cl.seq++
	c.send(s, k, 0, mMsg{kind: mLeave, seq: cl.seq, id: cl.id})
	*cl = mClient{id: cl.id + 1, seq: cl.seq, highest: cl.highest, locks: cl.locks + 1}
}
