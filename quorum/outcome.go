package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/store"
)

// win ends the attempt with a grant.
func (a *attempt) win(d decision) (store.Answer, error) {
	s, se := a.s, a.se
	now := s.now()
	valid := min(a.want, s.rules.validity(a.ttl, now-a.begin))
	if now-a.begin >= valid {
		a.op.finish(nil)
		return store.Answer{}, fmt.Errorf("quorum store: the replies took %v of a TTL of %v", now-a.begin, valid)
	}
	s.tokens.learn(d.first, d.last, a.choices > 0, now)
	se.mu.Lock()
	se.held, se.waiting, se.queued, se.splits = true, false, false, 0
	se.ttl, se.renewed = a.want, false
	se.req, se.first, se.end, se.floor, se.until = a.req, d.first, d.last, max(se.floor, d.last), a.begin+valid
	se.mu.Unlock()
	s.crowds.note(a.req.Name, a.waiters > 0, now)
	if a.narrow {
		if a.rounds == 1 {
			s.noteRoundTrip(now - a.begin)
		}
		s.completeLater(se)
	}
	late := func(r *reply) {
		// A vote that comes late is welcome. A place in the queue is not.
		switch {
		case r.node == a.bell && (r.err != nil || !r.answer.Granted()):
			s.undo(se, r.node)
		case r.err == nil && r.answer.Granted() && r.answer.Token < d.first:
			s.align(a.req, r.node, d)
		}
	}
	for _, r := range a.op.finish(late) {
		a.apply(&r)
		if v := a.votes[r.node]; v.state == granted && v.first < d.first {
			s.after(se, r.node, false, func(context.Context, *node) error {
				s.align(a.req, r.node, d)
				return nil
			})
		}
	}
	if a.bell >= 0 && a.votes[a.bell].state == refused {
		s.leaveNode(se, a.bell)
	}
	return store.Answer{Token: d.first, Tokens: int(d.last - d.first + 1), TTL: valid, Waiters: a.waiters}, nil
}

// fail ends the attempt because too few nodes answered, or because ctx ended. The caller repeats the
// request or leaves. If others want the name, it gives back the votes that it knows of, which
// would only be in their way. Otherwise all votes stay: the repeated request finds those whose
// replies were lost.
func (a *attempt) fail(ctx context.Context) error {
	for _, r := range a.op.finish(nil) {
		a.apply(&r)
	}
	contended := slices.ContainsFunc(a.votes, func(v vote) bool { return v.state == refused || v.state == uncounted })
	for i, v := range a.votes {
		if contended && ctx.Err() == nil && (v.state == granted || v.state == uncounted) {
			a.s.leaveNode(a.se, i)
		}
	}
	a.se.mu.Lock()
	a.se.waiting = a.bell >= 0
	a.se.queued, a.se.woken = false, false
	a.se.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, err := range a.errs {
		if errors.Is(err, store.ErrInvalid) {
			return err
		}
	}
	a.s.moveBell(a.se)
	return a.s.failures(a.errs)
}

// refuse ends the attempt with a refusal. It gives back all votes, and keeps the place in the
// queue of the bell.
func (a *attempt) refuse() *store.Refusal {
	s, se := a.s, a.se
	for _, r := range a.op.finish(func(r *reply) {
		if (r.err != nil || r.answer.Granted()) && !errors.Is(r.err, errSkipped) && !errors.Is(r.err, errEarlier) {
			s.undo(se, r.node)
		}
	}) {
		a.apply(&r)
	}
	for i, v := range a.votes {
		if v.state == granted || v.state == uncounted || v.state == failed && !errors.Is(a.errs[i], errSkipped) {
			s.leaveNode(se, i)
		}
	}
	r := a.refusal()
	s.crowds.note(a.req.Name, true, s.now())
	if a.bell >= 0 {
		a.enqueue(r)
	}
	return r
}

// leaveNode undoes, in the background, what a node may have noted for an identity.
func (s *Store) leaveNode(se *session, i int) {
	s.after(se, i, true, func(ctx context.Context, n *node) error {
		return n.Leave(ctx, se.key.name, se.key.id)
	})
}

// align raises a late vote to the tokens of the lease, so that all nodes report the same. The
// caller has the lane.
func (s *Store) align(req store.Request, i int, d decision) {
	ctx, cancel := context.WithTimeout(s.life.Work, s.opts.Timeout)
	defer cancel()
	n := s.nodes[i]
	n.call(ctx, func(ctx context.Context) error {
		_, err := renewAt(ctx, n, store.Renewal{
			Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode,
			Tokens: int(d.last - d.first + 1), Floor: d.first - 1,
		})
		return err
	})
}

// undo is leaveNode for a caller that has the lane.
func (s *Store) undo(se *session, i int) {
	ctx, cancel := context.WithTimeout(s.life.Work, s.opts.Timeout)
	defer cancel()
	n := s.nodes[i]
	err := n.call(ctx, func(ctx context.Context) error { return n.Leave(ctx, se.key.name, se.key.id) })
	n.ended(se, err, true)
}
