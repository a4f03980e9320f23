package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

var errDowngrade = fmt.Errorf("%w: a quorum has exclusive locks only, a lease cannot step down to shared mode", store.ErrUnsupported)

// Renew extends grants on a majority of the nodes; see [store.Store]. Every grant has an outcome
// of its own. Nodes that have lost a grant, since they restarted, get it again if a majority
// extended it.
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
			return nil, fmt.Errorf("%w: token floor %d: no tokens are left above it", store.ErrInvalid, g.Floor)
		}
		s.maxTTL.note(g.TTL)
	}
	outcomes := make([]store.Renewed, len(grants))
	var wg sync.WaitGroup
	var batch []int
	for i := range grants {
		if len(grants) > 1 && grants[i].Tokens == 0 {
			batch = append(batch, i)
		} else {
			wg.Go(func() { outcomes[i] = s.renewOne(ctx, &grants[i]) })
		}
	}
	if len(batch) > 0 {
		s.renewMany(ctx, grants, batch, outcomes)
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for i := range outcomes {
		if outcomes[i].Status == store.Gone {
			s.leaveRest(grants[i].Name, grants[i].ID)
		}
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

// renewOne extends one grant, and reserves tokens if that is asked for.
func (s *Store) renewOne(ctx context.Context, g *store.Renewal) store.Renewed {
	se := s.open(g.Name, g.ID)
	defer s.shut(se)
	a := s.newAttempt(se, store.Request{Name: g.Name, ID: g.ID, Mode: g.Mode, TTL: g.TTL, Tokens: g.Tokens})
	se.lengthen(g.TTL)
	floor := g.Floor
	if g.Tokens > 0 {
		floor = max(floor, a.req.Floor)
	}
	t := tally{s: s, se: se, ttl: a.req.TTL}
	crowded, known := false, store.Unknown
	for i := range s.nodes {
		a.renew(i, floor, g.Tokens)
	}
	for {
		extended, gone, pending := 0, 0, 0
		for i := range a.votes {
			switch a.votes[i].state {
			case granted:
				extended++
			case refused:
				gone++
			case asked:
				pending++
			}
		}
		status := known
		if known == store.Unknown {
			status = s.rules.renewed(len(s.nodes), extended, gone)
			known = status // what follows is about tokens only
		}
		d := decision{verdict: won}
		if status == store.Extended && g.Tokens > 0 && !crowded {
			if pending > 0 && a.rounds == 0 && a.anyHealthyPending() && a.waitRenewed(ctx, a.grace(), &t, &crowded) {
				continue // a node may know of waiters
			}
			d = s.rules.decide(a.votes, g.Tokens)
		}
		if d.verdict == conflict {
			if !a.mayAgree() || !a.waitRenewed(ctx, a.grace(), &t, &crowded) {
				a.resolve(d)
			}
			continue
		}
		if d.verdict == won && status != store.Unknown || pending == 0 {
			for _, r := range a.op.finish(t.late(status)) {
				a.note(&r, &t, &crowded)
			}
			return a.renewed(g, status, d, crowded, &t)
		}
		if !a.waitRenewed(ctx, 0, &t, &crowded) {
			if ctx.Err() != nil {
				a.op.finish(t.late(store.Unknown))
				return store.Renewed{Err: ctx.Err()}
			}
			a.expire()
		}
	}
}

// waitRenewed applies the next reply of a renewal.
func (a *attempt) waitRenewed(ctx context.Context, limit time.Duration, t *tally, crowded *bool) bool {
	r, ok := a.op.next(ctx, limit)
	if ok {
		a.note(&r, t, crowded)
		a.apply(&r)
	}
	return ok
}

// note notes what a reply to a renewal tells about the vote of its node.
func (a *attempt) note(r *reply, t *tally, crowded *bool) {
	if a.rounds == 0 && r.err == nil {
		if r.renewed.Status == store.Gone {
			t.gone = append(t.gone, r.node)
		} else if a.se.noteAsked(r.node); r.renewed.Tokens == 0 {
			*crowded = true // only if tokens were asked for
		}
	}
}

func (a *attempt) anyHealthyPending() bool {
	for i, v := range a.votes {
		if v.state == asked && a.s.nodes[i].healthy() {
			return true
		}
	}
	return false
}

// renewed ends a renewal of one grant.
func (a *attempt) renewed(g *store.Renewal, status store.Status, d decision, crowded bool, t *tally) store.Renewed {
	s := a.s
	now := s.now()
	switch status {
	case store.Gone:
		return store.Renewed{Status: store.Gone}
	case store.Unknown:
		for _, err := range a.errs {
			if errors.Is(err, store.ErrInvalid) {
				return store.Renewed{Err: err}
			}
		}
		return store.Renewed{Err: s.failures(a.errs)}
	}
	out := store.Renewed{Status: store.Extended, TTL: min(a.want, s.rules.validity(a.ttl, now-a.begin))}
	if g.Tokens > 0 && !crowded && d.verdict == won {
		out.Token, out.Tokens = d.first, int(d.last-d.first+1)
		s.tokens.learn(d.first, d.last, a.choices > 0, now)
	}
	t.extended(a.begin+out.TTL, &out, g.Floor)
	for _, i := range t.gone {
		t.repairLater(i)
	}
	return out
}

// A tally is what becomes of the nodes of one grant in one renewal.
type tally struct {
	s    *Store
	se   *session
	ttl  time.Duration // at nodes
	gone []int         // nodes that have lost the grant
}

// extended notes that a lease was extended. A session that did not make the lease knows too
// little of it for repairs.
func (t *tally) extended(until time.Duration, out *store.Renewed, floor int64) {
	se := t.se
	se.mu.Lock()
	defer se.mu.Unlock()
	if !se.held {
		return
	}
	if out.Tokens > 0 {
		se.first, se.end = out.Token, out.Token+int64(out.Tokens)-1
	}
	se.until, se.floor = max(se.until, until), max(se.floor, floor, se.end)
}

// late returns what to do with replies that come after the outcome was known.
func (t *tally) late(status store.Status) func(r *reply) {
	if status != store.Extended {
		return nil
	}
	s, se, ttl := t.s, t.se, t.ttl
	return func(r *reply) {
		if r.err == nil && r.renewed.Status == store.Gone {
			s.repair(se, r.node, ttl)
		} else {
			se.noteAsked(r.node)
		}
	}
}

// repairLater repairs a node in the background.
func (t *tally) repairLater(i int) {
	s, se, ttl := t.s, t.se, t.ttl
	se.mu.Lock()
	held := se.held
	se.mu.Unlock()
	if held {
		s.after(se, i, false, func(context.Context, *node) error {
			s.repair(se, i, ttl)
			return nil
		})
	}
}

// repair gives a node its vote for a lease again. The caller has the lane, and a majority has
// extended the lease just now: see the rule Repair.
func (s *Store) repair(se *session, i int, ttl time.Duration) {
	req, floor, valid := se.further(s.now())
	if !valid {
		return
	}
	req.TTL = ttl
	se.noteAsked(i)
	ctx, cancel := context.WithTimeout(s.life.Work, s.opts.Timeout)
	defer cancel()
	n := s.nodes[i]
	var answer store.Answer
	err := n.call(ctx, func(ctx context.Context) (err error) {
		answer, err = n.Acquire(ctx, req)
		if err == nil && answer.Granted() && answer.Token+int64(answer.Tokens)-1 < floor {
			_, err = renewAt(ctx, n, store.Renewal{Name: req.Name, ID: req.ID, TTL: req.TTL, Mode: req.Mode, Floor: floor})
		}
		return err
	})
	if _, _, valid = se.further(s.now()); !valid && (err != nil || answer.Granted()) {
		s.undo(se, i)
	}
}

// leaveRest gives back the votes of a lease that has no majority any more: they would only be in
// the way of others. Nothing may call it before the holder is told, as these votes may be all that
// excludes others.
func (s *Store) leaveRest(name string, id store.ID) {
	se := s.open(name, id)
	defer s.shut(se)
	se.forget()
	for i := range s.nodes {
		s.leaveNode(se, i)
	}
}

// renewMany extends many grants, in one call to each node.
func (s *Store) renewMany(ctx context.Context, grants []store.Renewal, batch []int, outcomes []store.Renewed) {
	begin := s.now()
	requests := make([]store.Renewal, len(batch))
	sessions := make([]*session, len(batch)) // nil if there is none
	for k, i := range batch {
		requests[k] = grants[i]
		if se := s.find(grants[i].Name, grants[i].ID); se != nil {
			sessions[k] = se
			se.lengthen(grants[i].TTL)
			requests[k].TTL = se.longest()
		}
		requests[k].TTL = ttlAtNodes(max(grants[i].TTL, requests[k].TTL))
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
			n.late.Add(1)
			a.err = n.call(callCtx, func(ctx context.Context) (err error) {
				a.out, err = n.Renew(ctx, requests)
				if err == nil && len(a.out) != len(requests) {
					err = fmt.Errorf("%d outcomes of %d renewals", len(a.out), len(requests))
				}
				return err
			})
			n.late.Add(-1)
			answers <- a
		})
	}
	type count struct {
		extended int
		ttl      time.Duration
		gone     []int
	}
	counts := make([]count, len(batch))
	errs := make([]error, len(s.nodes))
	apply := func(a *answer) {
		errs[a.node] = a.err
		for k := range a.out {
			c := &counts[k]
			switch a.out[k].Status {
			case store.Extended:
				if se := sessions[k]; se != nil && se.isTainted(a.node, s.now()) {
					continue
				}
				if c.extended++; c.ttl == 0 || a.out[k].TTL < c.ttl {
					c.ttl = a.out[k].TTL
				}
			case store.Gone:
				c.gone = append(c.gone, a.node)
			}
		}
	}
	decided := func() bool {
		for k := range counts {
			if s.rules.renewed(len(s.nodes), counts[k].extended, len(counts[k].gone)) == store.Unknown {
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
			for i := range errs {
				if errs[i] == nil {
					errs[i] = errTimeout
				}
			}
		}
		break
	}
	for k, i := range batch {
		c := &counts[k]
		out := store.Renewed{Status: s.rules.renewed(len(s.nodes), c.extended, len(c.gone))}
		switch out.Status {
		case store.Extended:
			out.TTL = min(grants[i].TTL, s.rules.validity(c.ttl, s.now()-begin))
			if se := s.find(grants[i].Name, grants[i].ID); se != nil {
				(&tally{s: s, se: se}).extended(begin+out.TTL, &out, grants[i].Floor)
			}
		case store.Unknown:
			out.Err = s.failures(errs)
		}
		outcomes[i] = out
	}
	// The caller goes on; repairs follow when all nodes have answered.
	s.life.Go(func(context.Context) {
		defer cancel()
		for ; missing > 0; missing-- {
			a := <-answers
			apply(&a)
		}
		for k, i := range batch {
			c := &counts[k]
			if len(c.gone) == 0 || !s.rules.mayRepair(len(s.nodes), c.extended) {
				continue
			}
			if se := s.find(grants[i].Name, grants[i].ID); se != nil {
				t := tally{s: s, se: se, ttl: requests[k].TTL}
				for _, node := range c.gone {
					t.repairLater(node)
				}
			}
		}
	})
}
