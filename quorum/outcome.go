package quorum

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-lock/holdfast/store"
)

// win ends the attempt with a grant. Votes that arrive later are kept.
func (a *attempt) win(d decision) (store.Answer, error) {
	s, se := a.s, a.se
	now := s.now()
	valid := min(a.want, s.rules.validity(a.ttl, now-a.begin))
	if a.isLate() {
		a.op.finish(nil)
		return store.Answer{}, fmt.Errorf("quorum store: the replies took %v of a TTL of %v", now-a.begin, valid)
	}
	highest := d.last
	for _, v := range a.votes {
		if v.recorded-d.last < nearby {
			highest = max(highest, v.recorded)
		}
	}
	s.tokens.learn(d.first, highest, a.choices > 0, now)
	if a.rounds == 1 {
		s.noteRoundTrip(now - a.begin)
	}
	se.mu.Lock()
	if !se.held || now >= se.until { // another lease than before
		se.voted, se.ttl = 0, 0
	}
	se.held, se.waiting, se.queued, se.splits = true, false, false, 0
	se.ttl = max(se.ttl, a.want)
	se.req, se.first, se.last, se.floor, se.until = a.req, d.first, d.last, max(se.floor, d.last), a.begin+valid
	if a.baton != nil {
		a.batonWon(d)
	}
	se.mu.Unlock()
	unread := a.op.finish(func(r *reply) {
		if a.baton != nil && r.node != a.bell {
			se.batonVote(a.baton, r.node, voteOf(r))
		}
		switch {
		case r.err == nil && r.answer.Granted():
			if !se.noteVote(r.node) {
				s.undo(se, r.node)
			}
		case r.node == a.bell:
			s.undo(se, r.node) // the node may have a place in its queue for the request
		}
	})
	for i := range unread {
		a.apply(&unread[i])
		if n := unread[i].node; a.baton != nil && n != a.bell {
			se.batonVote(a.baton, n, a.votes[n])
		}
	}
	for i, v := range a.votes {
		switch {
		case v.state == granted, v.state == uncounted:
			se.noteVote(i)
		case i == a.bell && v.state == refused:
			s.leaveNode(se, i)
		}
	}
	if a.waiters > 0 {
		s.crowds.note(a.req.Name, now, crowdedFor)
	}
	if a.bell >= 0 && a.votes[a.bell].state == granted && a.votes[a.bell].recorded < highest && s.crowds.has(a.req.Name, now) {
		s.raise(se, a.bell, highest+8)
	}
	s.completeLater(se)
	return store.Answer{Token: d.first, Tokens: int(d.last - d.first + 1), TTL: valid, Waiters: a.waiters}, nil
}

// raise raises the counter of a bell, in the background. The bell chooses the tokens of the grants
// that it pushes. If its counter is behind the counters of the other nodes, every hand-off of the
// name needs another round.
func (s *Store) raise(se *session, bell int, floor int64) {
	o := s.newOp(se)
	o.start(bell, func(ctx context.Context, n *node, r *reply) {
		req, _, _ := se.further(s.now())
		_, r.err = renewAt(ctx, n, store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode, Floor: floor})
	})
	o.finish(nil)
}

// fail ends the attempt because too few nodes answered, or because ctx ended. The caller repeats
// the request or leaves. If other requests want the name, all votes are given back, because they
// would block those requests. Otherwise the votes stay: they may be those of a lease that is valid,
// and the repeated request finds those whose replies were lost.
func (a *attempt) fail(ctx context.Context) error {
	if ctx.Err() == nil && a.count(refused)+a.count(uncounted) > 0 && !a.holds() {
		a.giveBack()
	} else {
		a.op.finish(nil)
		a.dropBaton()
	}
	a.se.mu.Lock()
	a.se.waiting = a.bell >= 0
	a.se.queued, a.se.woken = false, false
	a.se.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for i, err := range a.errs {
		if errors.Is(err, store.ErrInvalid) {
			return err
		}
		if a.votes[i].state == refused {
			a.errs[i] = errRefused
		}
	}
	return a.s.failures(a.errs)
}

// refuse ends the attempt with a refusal. It gives back all votes, and keeps the place in the
// queue of the bell.
func (a *attempt) refuse() *store.Refusal {
	a.giveBack()
	r := a.refusal()
	a.s.crowds.note(a.req.Name, a.s.now(), crowdedFor)
	if a.bell >= 0 {
		a.enqueue(r)
	}
	return r
}

// giveBack gives back all votes, including those that arrive later. A node whose reply was lost may
// have voted too. If that node is failing, a request that waits asks it again with its next attempt,
// and its caller leaves all nodes in the end. If it sent a Leave now and got no reply, the votes of
// the node would not count any more: see the rule Order.
func (a *attempt) giveBack() {
	s, se := a.s, a.se
	giveBackLost := func(i int, leave func(se *session, i int)) {
		if a.bell >= 0 && s.nodes[i].failing.Load() {
			se.noteAsked(i)
		} else {
			leave(se, i)
		}
	}
	shared := func(i int) bool { return a.baton != nil && i != a.bell }
	unread := a.op.finish(func(r *reply) {
		switch {
		case shared(r.node):
		case r.err == nil && r.answer.Granted():
			s.undo(se, r.node)
		case r.err != nil && !unsent(r.err):
			giveBackLost(r.node, s.undo)
		}
	})
	for i := range unread {
		a.apply(&unread[i])
	}
	for i, v := range a.votes {
		switch {
		case shared(i):
		case v.state == granted || v.state == uncounted:
			s.leaveNode(se, i)
		case v.state == failed && !unsent(a.errs[i]) && !a.op.isPending(i):
			giveBackLost(i, s.leaveNode)
		}
	}
	a.dropBaton()
}

// unsent reports whether a call failed before its message was sent.
func unsent(err error) bool { return errors.Is(err, errSkipped) || errors.Is(err, errEarlier) }

// leaveNode removes, in the background, whatever a node may have recorded for an identity.
func (s *Store) leaveNode(se *session, i int) {
	se.noteLeft(i)
	o := s.newOp(se)
	o.ending = true
	o.start(i, func(ctx context.Context, n *node, r *reply) { r.err = s.leaveAt(ctx, se, n) })
	o.finish(nil)
}

// undo is like leaveNode, for a caller that has the lane.
func (s *Store) undo(se *session, i int) {
	ctx, cancel := context.WithTimeout(s.life.Work, s.opts.Timeout)
	defer cancel()
	se.noteLeft(i)
	n := s.nodes[i]
	se.noteEnded(i, s.now(), n.call(n.callContext(ctx), func(ctx context.Context) error { return s.leaveAt(ctx, se, n) }))
}

// voteOf returns the vote of a reply to an Acquire.
func voteOf(r *reply) vote {
	switch {
	case r.err != nil:
		return vote{state: failed}
	case !r.answer.Granted():
		return vote{state: refused}
	case r.exclude != nil:
		return vote{state: uncounted}
	}
	return vote{granted, r.answer.Token, r.answer.Token + int64(r.answer.Tokens) - 1}
}
