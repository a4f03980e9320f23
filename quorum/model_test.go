//go:build !race

package quorum

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// This file is a model of clients, nodes and a network. It has one goroutine, and the race detector
// would make it five times slower. The clients decide with the functions of rules.go. A state is
// comparable, so that a checker can remember which ones it has seen.
//
// Requests may be delivered in any order, late or never, and so may some replies. A client may
// give up waiting for any reply, and the message stays in flight. Nodes may restart without their
// data, and clients may crash.

const (
	mNodes   = 5 // at most
	mClients = 4
	mFlight  = 3 // messages in flight between one client and one node

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
	mPass
	mPush // from the bell to a waiter
)

// An mMsg is a request, or the reply to one.
type mMsg struct {
	kind   mKind
	reply  bool
	repair bool
	seq    int8 // of the call that it belongs to
	id     int8
	floor  int8
	tokens int8
	state  state // of a reply: granted or refused
	first  int8
	last   int8
	sent   int8 // when the request was sent, to the bell
	note   mNote
}

// An mNode is a node that follows the store contract.
type mNode struct {
	counter     int8
	id          int8 // of the holder; 0 if there is none
	first, last int8
	expires     int8
	born        int8
	bell        mBell
}

type mPhase uint8

const (
	mIdle    mPhase = iota
	mAsking         // an attempt is in progress
	mLeaving        // an attempt was refused, and its votes are being given back
	mFailed         // an attempt failed, and may be repeated
	mHolding
	mRenewing
	mQueued  // it waits at the bell
	mPassing // it has tried to pass its votes on
	mEnded   // the lease ended without a release
	mCrashed // or done
)

type mVote struct {
	state           state
	first, recorded int8
	waiting         int8 // seq of the message in its lane whose reply is awaited; 0 if none
	renewing        int8 // seq of a renewal in flight beside that message; 0 if none
	leaving         bool // the message in the lane ends votes
	tainted         bool // a message that ends votes is unanswered: see Order
	voted           bool // for the lease
	repaired        bool // by a repair: it is given back if the lease is gone
}

type mClient struct {
	phase    mPhase
	id       int8
	seq      int8
	begin    int8
	want     int8 // tokens
	chosen   bool
	floor    int8
	votes    [mNodes]mVote
	highest  int8
	last     int8
	until    int8 // of the lease
	over     bool // the lease was over when the renewal was sent
	attempts int8
	again    int8
	locks    int8
	renewals int8
	sent     int8 // when it asked the bell last
	baton    mNote
	token    int8 // of the bell's grant
}

type mState struct {
	time    int8
	nodes   [mNodes]mNode
	clients [mClients]mClient
	flight  [mClients][mNodes][mFlight]mMsg
	granted int8 // highest token of any lease; no client knows it
	owner   int8
	used    [5]int8
}

// Kinds of events whose number is bounded.
const (
	mTimeouts = iota
	mRestarts
	mCrashes
	mLate
	mCopies
)

// An mConfig bounds a run of the model.
type mConfig struct {
	rules           rules
	nodes, clients  int
	locks, attempts int8 // per client; attempts per lock
	renewals        int8 // per lock
	renewTokens     int8
	tokens          int8
	ticks           int8
	timeouts        int8
	late            int8 // number of replies that are not delivered at once; requests may always be late
	restarts        int8
	crashes         int8
	offsets         [mNodes]int8 // of the nodes' clocks
	clocks          bool         // counters follow the clocks
	apart           int8         // how much higher the proposals of the second client are
	second          int8         // when the second client may begin
	restartHeld     bool         // restarts only after a lease was granted
	prompt          bool         // time passes only while no message is in flight
	hold            bool         // no client releases its lock
	narrow          bool         // only a majority is asked at first
	alone           bool         // only the first node is asked at first, and chooses the token
	again           int8         // how often nodes that refused are asked again in an attempt
	returning       bool         // the first client begins with a lease, and with a further vote whose Leave is in flight
	repaired        bool         // the first client begins with a lease, and has repaired the last node
	queued          int8         // the first client begins with a lease that it can pass on to this many waiters
	aged            int8         // how old that lease is
	copies          int8         // number of messages that arrive twice
	snapshot        bool         // only the bell restarts, and then has the data of the start
	trace           bool         // describe steps
}

// A violation is a broken invariant.
type violation struct {
	what  string
	trace []string
}

func (v *violation) String() string { return v.what + "\n" + strings.Join(v.trace, "\n") }

type mStep struct {
	what string
	next mState
	bad  string
}

func (c *mConfig) start() mState {
	var s mState
	for i := range c.nodes {
		s.nodes[i].born = -100
	}
	for k := range c.clients {
		s.clients[k].id = int8(k*8 + 1)
		s.clients[k].highest = int8(k) * c.apart
	}
	if c.returning || c.repaired {
		cl := &s.clients[0]
		cl.phase, cl.until, cl.last, cl.highest = mHolding, mTTL, 1, 1
		s.granted, s.owner = 1, 0
		for i := range c.nodes {
			s.nodes[i] = mNode{counter: 1, id: cl.id, first: 1, last: 1, expires: mNodeTTL, born: -100}
			cl.votes[i] = mVote{state: granted, first: 1, recorded: 1, voted: true}
		}
		cl.votes[c.nodes-1].repaired = c.repaired
	}
	if c.queued > 0 {
		c.startPassing(&s)
	}
	if c.returning {
		s.clients[0].votes[1] = mVote{}
		c.leave(&s, 0, 1)
	}
	return s
}

// steps returns all steps that can happen next.
func (c *mConfig) steps(s *mState) (out []mStep) {
	add := func(bad string, next mState, format string, args ...any) {
		out = append(out, mStep{c.describe(s.time, format, args), next, bad})
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
				} else {
					if s.used[mCopies] < c.copies {
						twice := *s
						twice.used[mCopies]++
						c.serve(&twice, i, m)
						add("", twice, "node %d serves client %d: %s, which arrives once more", i, k, m)
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
			}
			cl := &s.clients[k]
			if s.used[mTimeouts] >= c.timeouts || cl.phase == mCrashed {
				continue
			}
			if cl.votes[i].waiting != 0 {
				next := *s
				next.used[mTimeouts]++
				v := &next.clients[k].votes[i]
				v.waiting = 0
				switch {
				case cl.phase == mPassing:
					c.passed(&next, k, failed)
				case v.leaving:
					v.tainted, v.leaving = true, false
				case cl.phase == mLeaving && v.state == asked:
					c.leave(&next, k, i) // it may have been granted
				case v.state == asked:
					v.state = failed
				}
				bad := c.decide(&next, k)
				add(bad, next, "client %d gives up on node %d", k, i)
			}
			if cl.votes[i].renewing != 0 {
				next := *s
				next.used[mTimeouts]++
				v := &next.clients[k].votes[i]
				v.renewing, v.state = 0, failed
				bad := c.decide(&next, k)
				add(bad, next, "client %d gives up on its renewal at node %d", k, i)
			}
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
		for i := range c.nodes {
			if c.snapshot && i > 0 {
				break
			}
			if c.faulty(s) >= c.nodes-(c.nodes/2+1) && s.time-s.nodes[i].born >= mDelay {
				continue // assumption: a minority
			}
			next := *s
			next.used[mRestarts]++
			next.nodes[i] = mNode{born: s.time}
			if c.snapshot && i == 0 {
				start := c.start()
				next.nodes[0] = start.nodes[0]
				next.nodes[0].born = s.time
			}
			add("", next, "node %d restarts without its data", i)
		}
	}
	return out
}

func (c *mConfig) faulty(s *mState) (n int) {
	for i := range c.nodes {
		if s.time-s.nodes[i].born < mDelay {
			n++
		}
	}
	return n
}

// clientSteps adds the steps that a client can take by itself.
func (c *mConfig) clientSteps(s *mState, k int, add func(string, mState, string, ...any)) {
	cl := &s.clients[k]
	settled, renewing := true, false
	for i := range c.nodes {
		settled = settled && cl.votes[i].waiting == 0
		renewing = renewing || cl.votes[i].renewing != 0
	}
	if cl.phase == mAsking && c.mayAskMore(cl) {
		next := *s
		c.askMore(&next, k)
		add("", next, "client %d asks the other nodes", k)
	}
	switch cl.phase {
	case mIdle, mFailed, mLeaving:
		if k > 0 && s.time < c.second {
			break
		}
		for other := range k { // clients that have not begun are equal, so the first one begins first
			if c.apart == 0 && cl.phase == mIdle && s.clients[other].phase == mIdle && cl.locks == 0 && s.clients[other].locks == 0 {
				return
			}
		}
		ready := settled || cl.phase == mLeaving && c.rules.off(noOrder)
		if ready && cl.attempts < c.attempts && cl.locks < c.locks {
			next := *s
			c.acquire(&next, k)
			add("", next, "client %d asks under identity %d", k, cl.id)
		}
	case mQueued:
		if cl.attempts < c.attempts {
			next := *s
			c.acquire(&next, k)
			add("", next, "client %d asks the bell again", k)
		}
	case mHolding, mEnded:
		if cl.phase == mHolding && cl.baton.id != 0 {
			next := *s
			c.pass(&next, k)
			add("", next, "client %d passes its votes on", k)
		}
		if cl.renewals < c.renewals && (settled || c.returning) && !renewing {
			next := *s
			c.renew(&next, k)
			add("", next, "client %d renews", k)
		}
		if cl.phase == mHolding && !c.hold {
			next := *s
			c.release(&next, k)
			add("", next, "client %d releases", k)
		}
	}
	for i := range c.nodes {
		if v := cl.votes[i]; v.repaired && v.waiting == 0 && c.holds(s, cl) && c.isGone(s, k, i) {
			next := *s
			next.clients[k].votes[i].voted, next.clients[k].votes[i].repaired = false, false
			c.leave(&next, k, i)
			add("", next, "client %d gives back the repaired vote of node %d", k, i)
		}
	}
	if cl.phase != mCrashed && cl.phase != mIdle && s.used[mCrashes] < c.crashes {
		next := *s
		next.used[mCrashes]++
		next.clients[k] = mClient{phase: mCrashed}
		add("", next, "client %d crashes", k)
	}
}

func (c *mConfig) send(s *mState, k, i int, m mMsg) {
	for f := range mFlight {
		if s.flight[k][i][f].kind == mNone {
			s.flight[k][i][f] = m
			return
		}
	}
	// The network is full, so the message is lost.
}

func (c *mConfig) call(s *mState, k, i int, m mMsg) {
	cl := &s.clients[k]
	cl.seq++
	m.seq, m.id = cl.seq, cl.idAt(i)
	cl.votes[i].waiting = cl.seq
	c.send(s, k, i, m)
}

func (c *mConfig) acquire(s *mState, k int) {
	cl := &s.clients[k]
	cl.phase, cl.begin, cl.want, cl.chosen = mAsking, s.time, c.tokens, false
	cl.attempts++
	proposal := cl.highest + 1
	cl.floor, cl.again = proposal-1, 0
	for i := range c.nodes {
		cl.votes[i] = mVote{state: idle, tainted: cl.votes[i].tainted}
		switch {
		case c.waits(k) && i > 0:
		case c.alone && i > 0, c.narrow && i > c.nodes/2:
		default:
			c.ask(s, k, i)
		}
	}
}

func (c *mConfig) ask(s *mState, k, i int) {
	cl := &s.clients[k]
	floor, bell := cl.floor, cl.votes[0]
	cl.votes[i].state = asked
	if i == 0 {
		cl.sent = s.time
	}
	switch {
	case c.alone && i == 0:
		floor = 0
	case c.alone && bell.state == granted:
		floor = bell.first - 1
	}
	c.call(s, k, i, mMsg{kind: mAcquire, floor: floor, tokens: c.tokens, sent: s.time})
}

// mayAskMore reports whether there are nodes that were not asked yet. They may be asked at any
// time, because the others may be slow.
func (c *mConfig) mayAskMore(cl *mClient) bool {
	for i := range c.nodes {
		if cl.votes[i].state == idle && cl.votes[i].waiting == 0 {
			return true
		}
	}
	return false
}

func (c *mConfig) askMore(s *mState, k int) {
	for i := range c.nodes {
		if v := &s.clients[k].votes[i]; v.state == idle && v.waiting == 0 {
			c.ask(s, k, i)
		}
	}
}

func (c *mConfig) renew(s *mState, k int) {
	cl := &s.clients[k]
	cl.over = cl.phase == mEnded
	cl.phase, cl.begin, cl.want, cl.chosen = mRenewing, s.time, c.renewTokens, false
	cl.renewals++
	for i := range c.nodes {
		v := &cl.votes[i]
		v.state, v.first, v.recorded = asked, 0, 0
		m := mMsg{kind: mRenew, floor: cl.last, tokens: c.renewTokens}
		if c.renewTokens > 0 {
			c.call(s, k, i, m)
			continue
		}
		cl.seq++
		m.seq, m.id, v.renewing = cl.seq, cl.id, cl.seq
		c.send(s, k, i, m)
	}
}

// release ends the lock. The next lock has another identity.
func (c *mConfig) release(s *mState, k int) {
	cl := &s.clients[k]
	for i := range c.nodes {
		cl.seq++
		c.send(s, k, i, mMsg{kind: mLeave, seq: cl.seq, id: cl.idAt(i)})
	}
	*cl = mClient{id: cl.id + 1, seq: cl.seq, highest: cl.highest, locks: cl.locks + 1}
}

// serve is the node's side.
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
			r.state, r.first, r.last, r.note = granted, n.first, n.last, n.bell.note
		}
		n.bell.ask(n, m, r.state)
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
			c.wake(s, n)
		}
	case mPass:
		r.state = c.servePass(s, n, m)
	}
	return r
}

// receive lets a client receive a reply.
func (c *mConfig) receive(s *mState, k, i int, m mMsg) string {
	cl := &s.clients[k]
	v := &cl.votes[i]
	if m.kind == mPush {
		return c.receivePush(s, k, m)
	}
	if cl.phase == mCrashed || v.waiting != m.seq && v.renewing != m.seq || m.id != cl.idAt(i) {
		return "" // no call waits for it
	}
	renewal := v.renewing == m.seq
	if renewal {
		v.renewing = 0
	} else {
		v.waiting = 0
	}
	switch {
	case m.kind == mPass:
		c.passed(s, k, m.state)
		return ""
	case m.kind == mLeave:
		v.leaving = false
		return ""
	case m.repair && m.state == granted && cl.until <= s.time:
		c.leave(s, k, i)
		return ""
	case m.repair:
		v.voted = v.voted || m.state == granted
		v.repaired = m.state == granted
		return ""
	case m.kind == mAcquire && cl.phase != mAsking && cl.phase != mLeaving: // a straggler of an attempt
		v.voted = v.voted || m.state == granted
		return ""
	case cl.phase == mLeaving && m.state == granted: // a straggler of a refused attempt
		c.leave(s, k, i)
		return ""
	case m.state == refused:
		v.state = refused
	case m.kind == mAcquire:
		v.state, v.first, v.recorded, v.voted = granted, m.first, m.last, true
		young := !c.rules.counts(time.Duration(s.time-s.nodes[i].born), mDelay)
		if young || v.tainted && !c.rules.off(noOrder) {
			v.state = uncounted
		}
		if m.note.id != 0 && c.waits(k) {
			return c.take(s, k, m.note)
		}
	case renewal && !c.rules.extends(v.voted, v.tainted), v.tainted && !c.rules.off(noOrder):
		v.state = uncounted
	default:
		v.state, v.recorded = granted, max(v.recorded, m.floor)
		if m.tokens > 0 {
			v.first, v.recorded = m.first, m.last
		}
	}
	return c.decide(s, k)
}

// decide lets a client act on the replies that it has received.
func (c *mConfig) decide(s *mState, k int) string {
	cl := &s.clients[k]
	switch cl.phase {
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
	if c.waits(k) && cl.votes[0].state == refused {
		cl.phase = mQueued
		return ""
	}
	votes, _, _, _ := c.tally(cl)
	d := c.rules.decide(votes, int(cl.want))
	switch d.verdict {
	case won:
		valid := int8(mTTL)
		if c.rules.off(noValidity) {
			valid += s.time - cl.begin
		}
		if s.time-cl.begin >= valid {
			cl.phase = mFailed
			return ""
		}
		cl.phase, cl.until = mHolding, cl.begin+valid
		return c.grant(s, k, d)
	case conflict:
		c.resolve(s, k, d)
	case lost:
		if cl.again < c.again { // as a candidate does
			cl.again++
			for i := range c.nodes {
				if cl.votes[i].state == refused {
					c.ask(s, k, i)
				}
			}
			return ""
		}
		cl.phase = mLeaving
		for i := range c.nodes {
			v := &cl.votes[i]
			if v.state == asked && !c.rules.off(noOrder) {
				continue // the vote is given back when it arrives: see receive
			}
			if v.state != refused && v.state != idle {
				c.leave(s, k, i)
			}
		}
	case broken:
		cl.phase = mFailed
	case open:
		if _, _, _, pending := c.tally(cl); pending == 0 {
			c.askMore(s, k)
		}
	}
	return ""
}

// leave gives a vote back.
func (c *mConfig) leave(s *mState, k, i int) {
	v := &s.clients[k].votes[i]
	if s.clients[k].phase == mLeaving {
		v.state = idle
	}
	c.call(s, k, i, mMsg{kind: mLeave})
	if v.leaving = true; c.rules.off(noOrder) {
		v.waiting, v.leaving = 0, false
	}
}

// grant records that a block is used, and checks the invariants.
func (c *mConfig) grant(s *mState, k int, d decision) string {
	cl := &s.clients[k]
	bad := ""
	if int8(d.first) <= s.granted {
		bad = fmt.Sprintf("I2: client %d is granted token %d, but %d was granted before", k, d.first, s.granted)
	}
	s.granted, s.owner = max(s.granted, int8(d.last)), int8(k)
	cl.last, cl.highest = int8(d.last), max(cl.highest, int8(d.last))
	for other := range c.clients {
		if o := &s.clients[other]; other != k && c.holds(s, o) {
			bad = fmt.Sprintf("I1: clients %d and %d hold valid leases", k, other)
		}
	}
	return bad
}

// holds reports whether a client believes that its lease is valid.
func (c *mConfig) holds(s *mState, cl *mClient) bool {
	return (cl.phase == mHolding || cl.phase == mRenewing) && cl.until > s.time && cl.last > 0
}

func (c *mConfig) resolve(s *mState, k int, d decision) {
	cl := &s.clients[k]
	first := !cl.chosen
	cl.chosen = true
	for i := range c.nodes {
		v := &cl.votes[i]
		if v.state != granted || !first && int64(v.first) > d.first {
			continue
		}
		v.state = asked
		if first {
			c.call(s, k, i, mMsg{kind: mRenew, floor: int8(d.last), tokens: cl.want})
		} else {
			c.call(s, k, i, mMsg{kind: mRenew, floor: int8(d.first) + cl.want - 1})
		}
	}
}

func (c *mConfig) decideRenew(s *mState, k int) string {
	cl := &s.clients[k]
	votes, extended, gone, pending := c.tally(cl)
	if cl.chosen && extended+pending < c.rules.majority(c.nodes) {
		cl.phase = mFailed // the tokens are not known; the lease continues without them, which mHolding covers
		return ""
	}
	status := store.Extended
	if !cl.chosen {
		status = c.rules.renewed(c.nodes, extended, gone)
	}
	switch {
	case status == store.Unknown && pending == 0, status == store.Gone:
		c.repair(s, k, status)
		cl.phase = mEnded
		if status == store.Unknown && cl.until > s.time && !cl.over {
			cl.phase = mHolding
		}
		return ""
	case status == store.Unknown:
		return ""
	}
	var d decision
	if cl.want > 0 {
		if d = c.rules.decide(votes, int(cl.want)); d.verdict == conflict {
			c.resolve(s, k, d)
			return ""
		} else if d.verdict != won {
			return ""
		}
	}
	if s.owner != int8(k) && cl.begin+mTTL > s.time { // otherwise the lease is over, whatever the reply
		return fmt.Sprintf("I3: client %d extends its lease, but client %d was granted the name since", k, s.owner)
	}
	c.repair(s, k, status)
	cl.phase = mEnded
	if cl.until > s.time { // otherwise the lease was lost meanwhile, whatever the reply
		cl.phase, cl.until = mHolding, cl.begin+mTTL
	}
	if cl.phase == mHolding && cl.want > 0 {
		return c.grant(s, k, d)
	}
	return ""
}

// repair requests the votes of nodes that do not have the grant.
func (c *mConfig) repair(s *mState, k int, status store.Status) {
	cl := &s.clients[k]
	if !c.rules.mayRepair(status, cl.until > s.time && !cl.over) {
		return
	}
	for i := range c.nodes {
		if v := &cl.votes[i]; (v.state == refused || v.state == uncounted && !v.voted) && v.waiting == 0 {
			c.call(s, k, i, mMsg{kind: mAcquire, repair: true, floor: cl.last, tokens: 1})
		}
	}
}

// isGone reports whether the nodes other than a repaired one have lost the lease of a client. The
// client asks them, which takes no time here.
func (c *mConfig) isGone(s *mState, k, repaired int) bool {
	cl, gone := &s.clients[k], 0
	for i := range c.nodes {
		n := &s.nodes[i]
		if i != repaired && cl.votes[i].voted && (n.id != cl.id || n.expires <= s.time) {
			gone++
		}
	}
	return c.rules.gone(c.nodes, gone)
}

func (m mMsg) String() string {
	name := [...]string{"", "acquire", "renew", "leave", "pass", "push"}[m.kind]
	if m.note.id != 0 {
		name += fmt.Sprintf("%+v", m.note)
	}
	if m.repair {
		name = "repair"
	}
	if !m.reply {
		return fmt.Sprintf("%s(id %d, floor %d, n %d)", name, m.id, m.floor, m.tokens)
	}
	if m.state == granted {
		return fmt.Sprintf("%s: yes, %d to %d", name, m.first, m.last)
	}
	return name + ": no"
}

// describe formats a step. It does so only if a trace is wanted, because formatting is slow.
func (c *mConfig) describe(time int8, format string, args []any) string {
	if !c.trace {
		return ""
	}
	return fmt.Sprintf("t=%d ", time) + fmt.Sprintf(format, args...)
}
