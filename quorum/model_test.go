//go:build !race

package quorum

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// This file is a model of clients, nodes and a network. It has one goroutine, and the race detector
// would make it five times slower. The clients decide with the functions of rules.go. A state is
// comparable, so that a checker can remember which ones it has seen.
//
// Requests may be delivered in any order, late or never, and so may some replies. A client may give up waiting for
// any reply, and the message stays in flight. Nodes may restart without their data, and clients may crash. A node
// that grants a queued request when the name becomes free is the same as a request that is delivered late.

const (
	mNodes   = 5 // at most
	mClients = 4
	mFlight  = 3 // messages in flight between one client and one node

	mTick    = time.Hour
	mTTL     = 2        // validity of a lease, in ticks
	mNodeTTL = mTTL + 1 // with the allowance for drift
	mDelay   = mNodeTTL // restart delay
	mRate    = 4        // tokens per tick of a node's clock
)

type mKind uint8

const (
	mNone mKind = iota
	mAcquire
	mRenew
	mLeave
)

// An mMsg is a request, or the reply to one.
type mMsg struct {
	kind   mKind
	reply  bool
	repair bool
	seq    int8  // of the call that it belongs to
	state  state // of a reply: granted or refused

	id, floor, tokens, first, last int8
}

// An mNode is a node that follows the store contract.
type mNode struct {
	counter     int8
	id          int8 // of the holder; 0 if there is none
	first, last int8
	expires     int8
	born        int8
}

type mPhase uint8

const (
	mIdle    mPhase = iota
	mAsking         // an attempt is in progress
	mLeaving        // an attempt was refused, and its votes are being given back
	mFailed         // an attempt failed, and may be repeated
	mHolding
	mRenewing
	mEnded   // the lease ended without a release
	mCrashed // or done
)

type mVote struct {
	state           state
	first, recorded int8
	waiting         int8 // seq of the message in its seat whose reply is awaited; 0 if none
	renewing        int8 // seq of a renewal in flight beside that message; 0 if none
	leaving         bool // the message in the seat ends votes
	barred          bool // a message that ends votes is unanswered: see Order
	voted           bool // for the lease
}

type mClient struct {
	phase  mPhase
	votes  [mNodes]mVote
	raised bool
	want   int8 // tokens
	until  int8 // of the lease

	id, seq, begin, last, attempts, locks, renewals int8
}

type mState struct {
	time    int8
	nodes   [mNodes]mNode
	clients [mClients]mClient
	flight  [mClients][mNodes][mFlight]mMsg
	granted int8 // highest token of any lease; no client knows it
	owner   int8
	used    [4]int8
}

// Kinds of events whose number is bounded.
const (
	mTimeouts = iota
	mRestarts
	mCrashes
	mLate
)

// An mConfig bounds a run of the model.
type mConfig struct {
	nodes, clients  int
	locks, attempts int8         // per client; attempts per lock
	renewals        int8         // per lock
	late            int8         // number of replies that are not delivered at once; requests may always be late
	offsets         [mNodes]int8 // of the nodes' clocks
	counters        [mNodes]int8 // at the start
	clocks          bool         // counters follow the clocks
	second          int8         // when the second client may begin
	restartHeld     bool         // restarts only after a lease was granted
	prompt          bool         // time passes only while no message is in flight
	hold            bool         // no client releases its lock
	returning       bool         // the first client begins with a lease, and with a further vote whose Leave is in flight
	trace           bool         // describe steps

	tokens, renewTokens, ticks, timeouts, restarts, crashes int8
}

type mStep struct {
	what string
	next mState
	bad  string
}

func (c *mConfig) start() mState {
	var s mState
	for i := range c.nodes {
		s.nodes[i].born, s.nodes[i].counter = -100, c.counters[i]
	}
	for k := range c.clients {
		s.clients[k].id = int8(k*8 + 1)
	}
	if c.returning {
		cl := &s.clients[0]
		s.time = 1
		cl.phase, cl.until, cl.last = mHolding, 1+mTTL, 1
		s.granted, s.owner = 1, 0
		for i := range c.nodes {
			s.nodes[i] = mNode{counter: 1, id: cl.id, first: 1, last: 1, expires: 1 + mNodeTTL, born: -100}
			cl.votes[i] = mVote{state: granted, first: 1, recorded: 1, voted: true}
		}
		s.nodes[c.nodes-1].expires-- // it missed the last renewal
		cl.votes[1] = mVote{voted: true}
		c.leave(&s, 0, 1)
	}
	return s
}

func (c *mConfig) steps(s *mState) (out []mStep) {
	add := func(bad string, next mState, format string, args ...any) {
		what := ""
		if c.trace { // formatting is slow
			what = fmt.Sprintf("t=%d ", s.time) + fmt.Sprintf(format, args...)
		}
		out = append(out, mStep{what, next, bad})
	}
	for k := range c.clients {
		c.clientSteps(s, k, add)
		for i := range c.nodes {
			for f := range mFlight {
				m := s.flight[k][i][f]
				if m.kind == mNone {
					continue
				}
				next := *s
				next.flight[k][i][f] = mMsg{}
				if m.reply {
					bad := c.receive(&next, k, i, m)
					add(bad, next, "client %d hears from node %d: %s", k, i, m)
					continue
				}
				r := c.serve(&next, i, m)
				heard := next
				bad := c.receive(&heard, k, i, r)
				add(bad, heard, "node %d serves client %d: %s: %s", i, k, m, r)
				if s.used[mLate] < c.late && s.clients[k].votes[i].waiting == m.seq {
					next.used[mLate]++
					next.flight[k][i][f] = r
					add("", next, "node %d serves client %d: %s, the reply is late", i, k, m)
				}
			}
			c.timeouts1(s, k, i, add)
		}
	}
	if s.time < c.ticks && (!c.prompt || s.flight == [mClients][mNodes][mFlight]mMsg{}) {
		next := *s
		next.time++
		for k := range c.clients {
			if cl := &next.clients[k]; cl.phase == mHolding && cl.until <= next.time {
				cl.phase = mEnded
			}
		}
		add("", next, "tick")
	}
	if s.used[mRestarts] < c.restarts && (!c.restartHeld || s.granted > 0) {
		old := func(n mNode) bool { return s.time-n.born >= mDelay }
		faulty := len(slices.DeleteFunc(slices.Clone(s.nodes[:c.nodes]), old))
		for i := range c.nodes {
			if faulty >= c.nodes-(c.nodes/2+1) && old(s.nodes[i]) {
				continue // assumption: a minority
			}
			next := *s
			next.used[mRestarts]++
			next.nodes[i] = mNode{born: s.time}
			add("", next, "node %d restarts without its data", i)
		}
	}
	return out
}

// timeouts1 adds the steps in which a client gives up on a node.
func (c *mConfig) timeouts1(s *mState, k, i int, add func(string, mState, string, ...any)) {
	cl := &s.clients[k]
	if s.used[mTimeouts] >= c.timeouts || cl.phase == mCrashed {
		return
	}
	for n, seq := range []int8{cl.votes[i].waiting, cl.votes[i].renewing} {
		if seq == 0 {
			continue
		}
		next := *s
		next.used[mTimeouts]++
		v := &next.clients[k].votes[i]
		switch renewal := n == 1; {
		case renewal:
			v.renewing, v.state = 0, failed
		case v.leaving:
			v.waiting, v.barred, v.leaving = 0, true, false
		case cl.phase == mLeaving && v.state == asked:
			c.leave(&next, k, i) // it may have been granted
		case v.state == asked:
			v.waiting, v.state = 0, failed
		default:
			v.waiting = 0
		}
		bad := c.decide(&next, k)
		add(bad, next, "client %d gives up on node %d: %s", k, i, [...]string{"its seat", "its renewal"}[n])
	}
}

// clientSteps adds the steps that a client can take by itself.
func (c *mConfig) clientSteps(s *mState, k int, add func(string, mState, string, ...any)) {
	cl := &s.clients[k]
	act := func(do func(s *mState, k int), what string) {
		next := *s
		do(&next, k)
		add("", next, "client %d, identity %d, %s", k, cl.id, what)
	}
	settled, renewing := true, false
	for i := range c.nodes {
		settled = settled && cl.votes[i].waiting == 0
		renewing = renewing || cl.votes[i].renewing != 0
	}
	switch cl.phase {
	case mIdle, mFailed, mLeaving:
		if k > 0 && s.time < c.second {
			break
		}
		for other := range k { // clients that have not begun are equal, so the first one begins first
			if cl.phase == mIdle && s.clients[other].phase == mIdle && cl.locks == 0 && s.clients[other].locks == 0 {
				return
			}
		}
		if settled && cl.attempts < c.attempts && cl.locks < c.locks {
			act(c.acquire, "asks")
		}
	case mHolding, mEnded:
		if cl.renewals < c.renewals && (settled || c.returning) && !renewing && c.isValid(s, cl) {
			act(c.renew, "renews")
		}
		if cl.phase == mHolding && !c.hold {
			act(c.release, "releases")
		}
	}
	if cl.phase != mCrashed && cl.phase != mIdle && s.used[mCrashes] < c.crashes {
		act(func(s *mState, k int) {
			s.used[mCrashes]++
			s.clients[k] = mClient{phase: mCrashed}
		}, "crashes")
	}
}

func (c *mConfig) send(s *mState, k, i int, m mMsg) (seq int8) {
	cl := &s.clients[k]
	cl.seq++
	m.seq, m.id = cl.seq, cl.id
	for f := range mFlight { // if the network is full, the message is lost
		if s.flight[k][i][f].kind == mNone {
			s.flight[k][i][f] = m
			break
		}
	}
	return cl.seq
}

func (c *mConfig) acquire(s *mState, k int) {
	cl := &s.clients[k]
	cl.phase, cl.begin, cl.want, cl.raised = mAsking, s.time, c.tokens, false
	cl.attempts++
	for i := range c.nodes {
		cl.votes[i] = mVote{state: asked, barred: cl.votes[i].barred}
		s.clients[k].votes[i].waiting = c.send(s, k, i, mMsg{kind: mAcquire, tokens: c.tokens})
	}
}

func (c *mConfig) renew(s *mState, k int) {
	cl := &s.clients[k]
	cl.phase, cl.begin, cl.want, cl.raised = mRenewing, s.time, c.renewTokens, false
	cl.renewals++
	for i := range c.nodes {
		v := &cl.votes[i]
		v.state, v.first, v.recorded = asked, 0, 0
		v.renewing = c.send(s, k, i, mMsg{kind: mRenew, floor: cl.last, tokens: c.renewTokens})
	}
}

// release ends the lock. The next lock has another identity.
func (c *mConfig) release(s *mState, k int) {
	cl := &s.clients[k]
	for i := range c.nodes {
		c.send(s, k, i, mMsg{kind: mLeave})
	}
	*cl = mClient{id: cl.id + 1, seq: cl.seq, locks: cl.locks + 1}
}

func (c *mConfig) serve(s *mState, i int, m mMsg) mMsg {
	n := &s.nodes[i]
	if n.id != 0 && n.expires <= s.time {
		n.id = 0
	}
	r := m
	r.reply, r.state = true, refused
	reserve := func() {
		n.first = max(n.counter, m.floor) + 1
		if c.clocks {
			n.first = max(n.first, s.time*mRate+c.offsets[i])
		}
		n.last = n.first + m.tokens - 1
		n.counter = n.last
	}
	switch m.kind {
	case mAcquire:
		if n.id == 0 {
			n.id = m.id
			reserve()
		}
		if n.id == m.id {
			n.expires = s.time + mNodeTTL
			r.state, r.first, r.last = granted, n.first, n.last
		}
	case mRenew:
		if n.id == m.id {
			n.expires = s.time + mNodeTTL
			if m.tokens > 0 {
				reserve()
			}
			n.counter = max(n.counter, m.floor)
			r.state, r.first, r.last = granted, n.first, n.last
		}
	case mLeave:
		if n.id == m.id {
			n.id = 0
		}
	}
	return r
}

func (c *mConfig) receive(s *mState, k, i int, m mMsg) string {
	cl := &s.clients[k]
	v := &cl.votes[i]
	if cl.phase == mCrashed || v.waiting != m.seq && v.renewing != m.seq || m.id != cl.id {
		return "" // no call waits for it
	}
	renewal := v.renewing == m.seq
	if renewal {
		v.renewing = 0
	} else {
		v.waiting = 0
	}
	switch {
	case m.kind == mLeave:
		v.leaving = false
		return ""
	case m.state == granted && (m.repair && !c.isValid(s, cl) || !m.repair && cl.phase == mLeaving):
		c.leave(s, k, i) // the lease is over, or it is a straggler of a refused attempt
		return ""
	case m.repair, m.kind == mAcquire && cl.phase != mAsking && cl.phase != mLeaving: // or a straggler of an attempt
		v.voted = v.voted || m.state == granted
		return ""
	case m.state == refused:
		v.state = refused
	case m.kind == mAcquire:
		v.state, v.first, v.recorded, v.voted = granted, m.first, m.last, true
		if !isOld(time.Duration(s.time-s.nodes[i].born), mDelay) || !countsVote(true, false, v.barred) {
			v.state = uncounted
		}
	case !countsVote(v.voted, v.leaving, v.barred):
		v.state = uncounted
	default:
		v.state, v.recorded = granted, max(v.recorded, m.floor)
		if m.tokens > 0 {
			v.first, v.recorded = m.first, m.last
		}
	}
	return c.decide(s, k)
}

func (c *mConfig) decide(s *mState, k int) string {
	switch s.clients[k].phase {
	case mAsking:
		return c.decideAcquire(s, k)
	case mRenewing:
		return c.decideRenew(s, k)
	}
	return ""
}

func (c *mConfig) tally(cl *mClient) (votes []vote, extended, gone, pending int) {
	for i := range c.nodes {
		v := cl.votes[i]
		votes = append(votes, vote{v.state, int64(v.first), int64(v.recorded)})
		switch v.state {
		case granted:
			extended++
		case refused:
			if v.voted {
				gone++
			}
		case asked:
			pending++
		}
	}
	return votes, extended, gone, pending
}

func (c *mConfig) decideAcquire(s *mState, k int) string {
	cl := &s.clients[k]
	votes, _, _, _ := c.tally(cl)
	d := decide(votes, int(cl.want))
	switch d.verdict {
	case won:
		if cl.until = c.validUntil(s, cl); s.time >= cl.until {
			cl.phase = mFailed
			return ""
		}
		cl.phase = mHolding
		return c.grant(s, k, d)
	case conflict:
		c.raise(s, k, d)
	case lost:
		cl.phase = mLeaving
		for i := range c.nodes {
			// The vote of a node that has not answered is given back when it arrives: see receive.
			if v := &cl.votes[i]; v.state == granted || v.state == uncounted {
				c.leave(s, k, i)
			}
		}
	case broken:
		cl.phase = mFailed
	}
	return ""
}

func (c *mConfig) validUntil(s *mState, cl *mClient) int8 {
	return int8(validUntil(time.Duration(cl.begin)*mTick, time.Duration(s.time)*mTick, mNodeTTL*mTick) / mTick)
}

func (c *mConfig) isValid(s *mState, cl *mClient) bool {
	return isValid(time.Duration(s.time)*mTick, time.Duration(cl.until)*mTick)
}

func (c *mConfig) leave(s *mState, k, i int) {
	v := &s.clients[k].votes[i]
	if s.clients[k].phase == mLeaving {
		v.state = failed
	}
	s.clients[k].votes[i].waiting = c.send(s, k, i, mMsg{kind: mLeave})
	v.leaving = true
}

// grant records that a block is used, and checks the invariants.
func (c *mConfig) grant(s *mState, k int, d decision) string {
	cl := &s.clients[k]
	bad := ""
	if int8(d.first) <= s.granted {
		bad = fmt.Sprintf("I2: client %d is granted token %d, but %d was granted before", k, d.first, s.granted)
	}
	s.granted, s.owner = max(s.granted, int8(d.last)), int8(k)
	cl.last = int8(d.last)
	for other := range c.clients { // that believes that its lease is valid
		o := &s.clients[other]
		if other != k && (o.phase == mHolding || o.phase == mRenewing) && o.until > s.time && o.last > 0 {
			bad = fmt.Sprintf("I1: clients %d and %d hold valid leases", k, other)
		}
	}
	return bad
}

func (c *mConfig) raise(s *mState, k int, d decision) {
	cl := &s.clients[k]
	cl.raised = true
	for i := range c.nodes {
		if v := &cl.votes[i]; v.state == granted && int64(v.first) <= d.first && int64(v.recorded) < d.last {
			v.state = asked
			v.renewing = c.send(s, k, i, mMsg{kind: mRenew, floor: int8(d.last)})
		}
	}
}

func (c *mConfig) decideRenew(s *mState, k int) string {
	cl := &s.clients[k]
	votes, extended, gone, pending := c.tally(cl)
	if cl.raised && extended+pending < majority(c.nodes) {
		cl.phase = mFailed // the tokens are not known; the lease continues without them, which mHolding covers
		return ""
	}
	status := store.Extended
	if !cl.raised {
		status = renewed(c.nodes, extended, gone)
	}
	switch {
	case status == store.Unknown && pending == 0, status == store.Gone:
		cl.phase = mEnded
		if status == store.Unknown && cl.until > s.time {
			cl.phase = mHolding
		}
		return ""
	case status == store.Unknown:
		return ""
	}
	var d decision
	if cl.want > 0 {
		if d = decide(votes, int(cl.want)); d.verdict == conflict {
			c.raise(s, k, d)
			return ""
		} else if d.verdict != won {
			return ""
		}
	}
	until := c.validUntil(s, cl)
	if s.owner != int8(k) && until > s.time { // otherwise the lease is over, whatever the reply
		return fmt.Sprintf("I3: client %d extends its lease, but client %d was granted the name since", k, s.owner)
	}
	c.repair(s, k)
	cl.phase = mEnded
	if cl.until > s.time { // otherwise the lease was lost meanwhile, whatever the reply
		cl.phase, cl.until = mHolding, until
	}
	if cl.phase == mHolding && cl.want > 0 {
		return c.grant(s, k, d)
	}
	return ""
}

func (c *mConfig) repair(s *mState, k int) {
	cl := &s.clients[k]
	if !c.isValid(s, cl) {
		return
	}
	for i := range c.nodes {
		if v := &cl.votes[i]; (v.state == refused || v.state == uncounted && !v.voted) && v.waiting == 0 && !v.barred {
			s.clients[k].votes[i].waiting = c.send(s, k, i, mMsg{kind: mAcquire, repair: true, floor: cl.last, tokens: 1})
		}
	}
}

func (m mMsg) String() string {
	name := [...]string{"", "acquire", "renew", "leave"}[m.kind]
	if m.reply {
		return fmt.Sprintf("%s: %s, %d to %d", name, [...]string{granted: "yes", refused: "no"}[m.state], m.first, m.last)
	}
	return fmt.Sprintf("%s(id %d, floor %d, n %d, repair %t)", name, m.id, m.floor, m.tokens, m.repair)
}
