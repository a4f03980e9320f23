package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

var errDowngrade = fmt.Errorf("%w: a quorum has exclusive locks only, a lease cannot step down to shared mode", store.ErrUnsupported)

// Renew extends grants on a majority of the nodes; see [store.Store]. Every grant has an outcome
// of its own. Nodes that were not asked for their vote, and nodes that have lost it because they
// restarted, get the grant too: see the rule Repair.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	for i := range grants {
		g := &grants[i]
		if g.Mode != store.Exclusive {
			return nil, errDowngrade
		}
		if g.Floor >= store.MaxToken {
			return nil, store.NoTokens(g.Floor)
		}
		s.maxTTL.note(g.TTL)
	}
	s.adoptAll(ctx, grants)
	outcomes := make([]store.Renewed, len(grants))
	var wg sync.WaitGroup
	var batch []int
	for i := range grants {
		switch g := &grants[i]; {
		case s.isShared(g.Name, g.ID):
			outcomes[i].Status = store.Gone
		case g.Tokens == 0:
			batch = append(batch, i)
		default:
			wg.Go(func() { outcomes[i] = s.renewTokens(ctx, g) })
		}
	}
	if len(batch) > 0 {
		s.renewBatch(ctx, grants, batch, outcomes)
	}
	wg.Wait()
	isKnown := func(o store.Renewed) bool { return o.Status != store.Unknown }
	if err := ctx.Err(); err != nil && !slices.ContainsFunc(outcomes, isKnown) {
		return nil, err
	}
	for i := range outcomes {
		if !errors.Is(outcomes[i].Err, store.ErrInvalid) {
			return outcomes, nil
		}
	}
	if len(outcomes) == 0 {
		return outcomes, nil
	}
	return nil, outcomes[0].Err
}

// A tally counts the replies of the nodes to the renewal of one grant.
type tally struct {
	se       *session // nil if nothing is known about the lease
	extended int
	gone     int   // nodes that had a vote and no longer have it
	without  []int // all nodes that do not have the grant
	ttl      time.Duration
}

// note adds the reply of a node.
func (t *tally) note(s *Store, i int, r *store.Renewed) {
	voted := t.se == nil || t.se.hasVote(i)
	switch r.Status {
	case store.Extended:
		if !s.rules.extends(voted, t.se != nil && t.se.isTainted(i, s.now())) {
			if !voted {
				t.without = append(t.without, i)
			}
			return
		}
		if t.extended++; t.ttl == 0 || r.TTL < t.ttl {
			t.ttl = r.TTL
		}
	case store.Gone:
		t.without = append(t.without, i)
		if voted {
			t.gone++
		}
	}
}

// failure returns why the outcome is unknown.
func (t *tally) failure(s *Store, errs []error) error {
	errs = slices.Clone(errs)
	for _, i := range t.without {
		errs[i] = errWithout
	}
	for _, err := range errs {
		if errors.Is(err, store.ErrInvalid) {
			return err
		}
	}
	return s.failures(errs)
}

// repair asks the nodes that do not have the grant for their vote, in the background.
func (t *tally) repair(s *Store, status store.Status) {
	if t.se == nil || status == store.Gone || len(t.without) == 0 {
		return
	}
	s.keep(t.se)
	s.life.Go(func(context.Context) {
		defer s.shut(t.se)
		s.repair(t.se, t.without)
	})
}

// repair asks nodes for their votes for a lease. If another handle releases or breaks the lease at
// the same time, which the nodes that voted report, the votes are given back.
func (s *Store) repair(se *session, nodes []int) {
	o := s.newOp(se)
	for _, i := range nodes {
		o.start(i, func(ctx context.Context, n *node, r *reply) { r.answer, r.err = s.repairNode(ctx, se, n) })
	}
	voted := false
	for range nodes {
		r, ok := o.next(s.life.Work, 0, 1)
		voted = voted || ok && r.err == nil && r.answer.Granted()
	}
	o.finish(nil)
	if voted && s.isGone(se, nodes) {
		for _, i := range nodes {
			s.leaveNode(se, i)
		}
	}
}

// repairNode is like repair, for one node and a caller that has the lane. If the lease is over when
// the reply arrives, the vote is given back.
func (s *Store) repairNode(ctx context.Context, se *session, n *node) (store.Answer, error) {
	req, floor, valid := se.further(s.now())
	if !s.rules.mayRepair(store.Unknown, valid) {
		return store.Answer{}, errOver
	}
	se.noteAsked(n.index)
	answer, err := n.Acquire(ctx, req)
	if err == nil && answer.Granted() && answer.Token+int64(answer.Tokens)-1 < floor {
		_, err = renewAt(ctx, n, store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode, Floor: floor})
	}
	_, _, valid = se.further(s.now())
	switch {
	case !valid && (err != nil || answer.Granted()):
		s.undo(se, n.index)
	case err == nil && answer.Granted():
		se.noteVote(n.index)
	}
	return answer, err
}

// completeAfter is when a lease requests the votes of the nodes that were not needed for it. Most
// leases are released earlier, which saves the messages to these nodes.
const completeAfter = 10 * time.Millisecond

// completeLater requests the votes of all nodes for a lease that is held for longer than
// completeAfter. With the votes of a bare majority, another lease could be granted if one node
// lost its vote and still answered, for example because its clock jumped.
func (s *Store) completeLater(se *session) {
	se.mu.Lock()
	defer se.mu.Unlock()
	switch {
	case !se.held || se.voted == 1<<len(s.nodes)-1 && se.baton == nil:
	case se.rest == nil:
		se.rest = time.AfterFunc(completeAfter, func() { s.complete(se) })
	default:
		se.rest.Reset(completeAfter)
	}
}

// complete requests the votes of the nodes that have not voted, unless another handle has released
// or broken the lease. Votes that could be passed on get the identity of the lease.
func (s *Store) complete(se *session) {
	if !s.life.Enter() {
		return
	}
	defer s.life.Leave()
	s.adopt(s.life.Work, se)
	var others []int
	for i := range s.nodes {
		if !se.hasVote(i) {
			others = append(others, i)
		}
	}
	if len(others) > 0 && !s.isGone(se, others) {
		s.repair(se, others)
	}
}

// isGone reports whether the nodes, other than those given, have lost a lease that is valid. It asks
// one node first, which usually still has its vote: see the rule Gone.
func (s *Store) isGone(se *session, except []int) bool {
	var voters []int
	for k := range s.nodes {
		i := s.order(se.key.name, k) // so that the nodes share the calls for many leases
		switch {
		case !se.hasVote(i) || slices.Contains(except, i):
		case s.nodes[i].healthy():
			voters = slices.Insert(voters, 0, i)
		default:
			voters = append(voters, i)
		}
	}
	gone := 0
	if len(voters) > 0 {
		gone = s.countGone(se, voters[:1])
	}
	if gone > 0 {
		gone += s.countGone(se, voters[1:])
	}
	return s.rules.gone(len(s.nodes), gone)
}

// countGone returns how many of the given nodes have lost their votes for a lease that is valid.
func (s *Store) countGone(se *session, nodes []int) (gone int) {
	req, _, valid := se.further(s.now())
	if !valid {
		return 0
	}
	o := s.newOp(se)
	defer o.finish(nil)
	for _, i := range nodes {
		o.start(i, func(ctx context.Context, n *node, r *reply) {
			r.renewed, r.err = renewAt(ctx, n, store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode})
		})
	}
	for range nodes {
		if r, _ := o.next(s.life.Work, 0, 1); r.renewed.Status == store.Gone {
			gone++
		}
	}
	return gone
}

// renewBatch extends grants without new tokens, in one call to each node.
func (s *Store) renewBatch(ctx context.Context, grants []store.Renewal, batch []int, outcomes []store.Renewed) {
	begin := s.now()
	requests := make([]store.Renewal, len(batch))
	tallies := make([]tally, len(batch))
	for k, i := range batch {
		requests[k] = grants[i]
		if se := s.find(grants[i].Name, grants[i].ID); se != nil {
			tallies[k].se = se
			requests[k].TTL = se.lengthen(grants[i].TTL)
		}
		requests[k].TTL = ttlAtNodes(requests[k].TTL)
	}
	type answer struct {
		node int
		out  []store.Renewed
		err  error
	}
	callCtx, cancel := context.WithTimeout(s.life.Work, s.opts.Timeout)
	answers := make(chan answer, len(s.nodes))
	for i, n := range s.nodes {
		s.life.Go(func(context.Context) {
			a := answer{node: i}
			a.err = n.call(callCtx, func(ctx context.Context) (err error) {
				a.out, err = n.Renew(ctx, requests)
				if err == nil && len(a.out) != len(requests) {
					err = fmt.Errorf("%d outcomes of %d renewals", len(a.out), len(requests))
				}
				return err
			})
			answers <- a
		})
	}
	errs := slices.Repeat([]error{errTimeout}, len(s.nodes))
	apply := func(a *answer) {
		errs[a.node] = a.err
		for k := range a.out {
			tallies[k].note(s, a.node, &a.out[k])
		}
	}
	decided := func() bool {
		for k := range tallies {
			if s.rules.renewed(len(s.nodes), tallies[k].extended, tallies[k].gone) == store.Unknown {
				return false
			}
		}
		return true
	}
	missing := len(s.nodes)
	for missing > 0 && !decided() {
		select {
		case a := <-answers:
			missing--
			apply(&a)
			continue
		case <-ctx.Done():
		case <-callCtx.Done():
		}
		break
	}
	for k, i := range batch {
		t := &tallies[k]
		out := store.Renewed{Status: s.rules.renewed(len(s.nodes), t.extended, t.gone)}
		switch out.Status {
		case store.Extended:
			out.TTL = min(grants[i].TTL, s.rules.validity(t.ttl, s.now()-begin))
			if t.se != nil {
				t.se.extended(begin+out.TTL, &out, grants[i].Floor)
			}
		case store.Gone:
			t.se.lost(s.now())
		case store.Unknown:
			out.Err = t.failure(s, errs)
		}
		outcomes[i] = out
	}
	// The caller continues, and repairs follow when all nodes have answered.
	s.life.Go(func(context.Context) {
		defer cancel()
		for ; missing > 0; missing-- {
			a := <-answers
			apply(&a)
		}
		for k := range tallies {
			t := &tallies[k]
			t.repair(s, s.rules.renewed(len(s.nodes), t.extended, t.gone))
		}
	})
}

// renewTokens extends one grant and reserves another block of tokens.
func (s *Store) renewTokens(ctx context.Context, g *store.Renewal) store.Renewed {
	se := s.open(g.Name, g.ID)
	defer s.shut(se)
	a := s.newAttempt(se, store.Request{Name: g.Name, ID: g.ID, Mode: g.Mode, TTL: g.TTL, Tokens: g.Tokens})
	se.lengthen(g.TTL)
	for i := range s.nodes {
		a.renew(i, max(g.Floor, a.req.Floor), g.Tokens)
	}
	t := tally{se: se}
	crowded := false
	out := store.Renewed{}
	a.overdue = true // wait for nodes that were slow before only if they are needed
	for {
		if out.Status == store.Unknown { // the following replies are about tokens only
			out.Status = s.rules.renewed(len(s.nodes), t.extended, t.gone)
		}
		d := s.rules.decide(a.votes, g.Tokens)
		unknown := a.count(asked) > 0 && (out.Status == store.Unknown || d.verdict == open && !crowded)
		switch {
		case out.Status == store.Gone:
			se.lost(s.now())
			a.op.finish(nil)
			return out
		case a.isPending(), unknown: // a node may know of waiters
			r, ok := a.op.next(ctx, s.hedge(), 1)
			switch {
			case ok:
				if a.rounds == 0 && r.err == nil {
					t.note(s, r.node, &r.renewed)
					crowded = crowded || r.renewed.Status == store.Extended && r.renewed.Tokens == 0
				}
				a.apply(&r)
			case ctx.Err() != nil && out.Status == store.Unknown:
				a.op.finish(nil)
				return store.Renewed{Err: ctx.Err()}
			case ctx.Err() != nil: // it is extended, even if the nodes have not agreed on tokens
				for i := range a.votes {
					if a.votes[i].state == asked {
						a.votes[i].state = failed
					}
				}
			case a.op.ctx.Err() != nil:
				a.expire()
			default:
				a.markSlow()
			}
			continue
		case out.Status == store.Extended && d.verdict == conflict && !crowded:
			a.resolve(d)
			continue
		}
		a.op.finish(nil)
		now := s.now()
		if out.Status == store.Unknown {
			out.Err = t.failure(s, a.errs)
		} else {
			out.TTL = min(a.want, s.rules.validity(a.ttl, now-a.begin))
			if !crowded && d.verdict == won {
				out.Token, out.Tokens = d.first, int(d.last-d.first+1)
				s.tokens.learn(d.first, d.last, a.choices > 0, now)
			}
			se.extended(a.begin+out.TTL, &out, g.Floor)
		}
		t.repair(s, out.Status)
		return out
	}
}

// count returns how many votes are in a state.
func (a *attempt) count(in state) (n int) {
	for _, v := range a.votes {
		if v.state == in {
			n++
		}
	}
	return n
}
