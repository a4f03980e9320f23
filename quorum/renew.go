package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

var (
	errUnknown   = errors.New("the outcome is unknown")
	errDowngrade = fmt.Errorf("%w: a quorum has exclusive locks only, a lease cannot step down to shared mode", store.ErrUnsupported)
)

// Renew extends grants on a majority of the nodes; see [store.Store]. Every grant has an outcome
// of its own. Nodes that do not have a grant, for example because they have restarted, get it in
// the background. A lease that is over is gone, even if nodes have not noticed that yet.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	begin := s.now()
	all, requests := make([]renewing, len(grants)), make([]store.Renewal, len(grants))
	for k := range grants {
		if grants[k].Mode != store.Exclusive {
			return nil, errDowngrade
		}
		if grants[k].Floor >= store.MaxToken {
			return nil, store.NoTokens(grants[k].Floor)
		}
		s.maxTTL.note(grants[k].TTL)
		all[k].init(s, grants[k])
		requests[k] = all[k].request
	}
	renew := func(ctx context.Context, n *node) ([]store.Renewed, error) {
		out, err := n.Renew(ctx, requests)
		if err == nil && len(out) != len(requests) {
			err = fmt.Errorf("%d outcomes of %d renewals", len(out), len(requests))
		}
		return out, err
	}
	gather(ctx, s, s.nodes, renew, func(i int, out []store.Renewed, err error) bool {
		decided := true
		for k := range all {
			if err != nil {
				all[k].note(i, store.Renewed{Err: err})
			} else {
				all[k].note(i, out[k])
			}
			// All nodes together may agree on new tokens.
			decided = decided && all[k].status() != store.Unknown && !all[k].disagrees()
		}
		return decided
	}, func(i int, out []store.Renewed, err error) {
		for k := range out {
			all[k].se.lateRenewal(i, out[k].Status)
		}
	})
	outcomes, known, invalid := make([]store.Renewed, len(grants)), 0, 0
	for k := range all {
		outcomes[k] = all[k].outcome(ctx, s, begin)
		if outcomes[k].Status != store.Unknown {
			known++
		}
		if errors.Is(outcomes[k].Err, store.ErrInvalid) {
			invalid++
		}
	}
	switch {
	case known == 0 && ctx.Err() != nil:
		return nil, ctx.Err()
	case invalid > 0 && invalid == len(grants):
		return nil, outcomes[0].Err
	}
	return outcomes, nil
}

// A renewing is the renewal of one grant.
type renewing struct {
	grant   store.Renewal
	request store.Renewal // as the nodes are asked
	se      *session      // nil if the lease belongs to another handle
	over    bool          // the lease had ended before
	votes   []vote
	errs    []error
	gone    int  // nodes that had given their vote and do not have the grant
	crowded bool // other requests are queued, so there are no new tokens
	block   int  // largest block that a node granted
	ttl     time.Duration
}

func (r *renewing) init(s *Store, grant store.Renewal) {
	r.grant, r.request = grant, grant
	r.votes, r.errs, r.ttl = make([]vote, len(s.nodes)), make([]error, len(s.nodes)), store.MaxTime
	ttl := grant.TTL
	if se := s.find(grant.Name, grant.ID); se != nil {
		se.mu.Lock()
		defer se.mu.Unlock()
		if r.over = se.held && !se.isValid(); se.held {
			r.se = se
			// Renewals of several callers arrive in any order, and none may shorten the lease.
			se.ttl = max(se.ttl, ttl)
			ttl = se.ttl
			for i := range se.seats {
				if se.hasVote(i) && se.seats[i].recorded < se.floor {
					r.request.Floor = max(r.request.Floor, se.floor)
				}
			}
		}
	}
	r.request.TTL = ttlAtNodes(ttl)
}

// note notes the reply of a node.
func (r *renewing) note(i int, out store.Renewed) {
	v, voted := &r.votes[i], true
	if r.se != nil {
		r.se.mu.Lock()
		defer r.se.mu.Unlock()
		voted = r.se.hasVote(i)
		r.se.seats[i].granted = r.se.seats[i].granted && out.Status != store.Gone
	}
	switch {
	case out.Status == store.Unknown:
		v.state, r.errs[i] = failed, cmp.Or(out.Err, errUnknown)
	case out.Status == store.Gone:
		v.state, r.errs[i] = refused, errWithout
		if voted {
			r.gone++
		}
	case !voted: // it may have the vote of an earlier attempt, which is being given back
		v.state, r.errs[i] = uncounted, errBarred
	default:
		*v = vote{granted, out.Token, max(r.request.Floor, out.Token+int64(out.Tokens)-1)}
		r.crowded = r.crowded || out.Tokens == 0
		r.block = max(r.block, out.Tokens)
		r.ttl = min(r.ttl, out.TTL)
		if r.se != nil {
			r.se.seats[i].recorded = max(r.se.seats[i].recorded, v.recorded)
		}
	}
}

// lateRenewal notes the reply of a node that the outcome did not need.
func (se *session) lateRenewal(i int, status store.Status) {
	if se == nil || status != store.Gone {
		return
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	se.seats[i].granted = false
	se.repair(i)
}

// status applies the rules Over and Renewal to the replies so far.
func (r *renewing) status() store.Status {
	if r.over {
		return store.Gone
	}
	extended := 0
	for _, v := range r.votes {
		if v.state == granted {
			extended++
		}
	}
	return renewed(len(r.votes), extended, r.gone)
}

// outcome returns the outcome of a renewal, and updates the lease.
func (r *renewing) outcome(ctx context.Context, s *Store, begin time.Duration) (out store.Renewed) {
	switch out.Status = r.status(); out.Status {
	case store.Unknown:
		out.Err = r.failure(s)
	case store.Extended:
		out.TTL = min(r.grant.TTL, validUntil(begin, s.now(), r.ttl)-begin)
		if r.grant.Tokens > 0 && !r.crowded {
			d := decide(r.votes, r.block)
			if d.verdict == conflict {
				d = s.raise(ctx, begin, r.request, r.votes, d)
			}
			if d.verdict == won {
				out.Token, out.Tokens = d.first, int(d.last-d.first+1)
			}
		}
	}
	if r.se == nil {
		return out
	}
	r.se.mu.Lock()
	defer r.se.mu.Unlock()
	se := r.se
	switch {
	case !se.held:
	case out.Status == store.Gone && se.attempt == nil:
		se.held = false
		se.setWant(wantNothing)
	case out.Status == store.Extended:
		if out.Tokens > 0 {
			se.first, se.last = out.Token, out.Token+int64(out.Tokens)-1
		}
		se.until, se.floor = max(se.until, begin+out.TTL), max(se.floor, r.grant.Floor, se.last)
	}
	for i := range se.seats {
		se.repair(i) // does nothing unless the lease is valid
	}
	return out
}

// disagrees reports whether the nodes have chosen different tokens.
func (r *renewing) disagrees() bool {
	return r.grant.Tokens > 0 && !r.crowded && decide(r.votes, r.block).verdict == conflict
}

// failure returns why the outcome of a renewal is unknown.
func (r *renewing) failure(s *Store) error {
	confirmed := 0
	for i, v := range r.votes {
		switch {
		case v.state == granted:
			confirmed++
		case v.state == asked:
			r.errs[i] = errTimeout
		case errors.Is(r.errs[i], store.ErrInvalid):
			return r.errs[i]
		}
	}
	return s.failures(r.errs, confirmed)
}

// raise makes nodes agree on a token: it raises the counters of those that are behind, and waits for
// a majority until the call that began at a time is over. It returns the decision that follows, and
// changes votes.
func (s *Store) raise(ctx context.Context, begin time.Duration, renewal store.Renewal, votes []vote, d decision) decision {
	ctx, cancel := context.WithTimeout(ctx, begin+s.opts.Timeout-s.now())
	defer cancel()
	renewal.Tokens, renewal.Floor = 0, d.last
	var behind []*node
	for i, v := range votes {
		if v.state == granted && v.first <= d.first && v.recorded < d.last {
			votes[i].state = asked
			behind = append(behind, s.nodes[i])
		}
	}
	agreed := decision{verdict: broken}
	gather(ctx, s, behind, func(ctx context.Context, n *node) ([]store.Renewed, error) {
		return n.Renew(ctx, []store.Renewal{renewal})
	}, func(i int, out []store.Renewed, err error) bool {
		if votes[i].state = failed; err == nil && slices.ContainsFunc(out, func(r store.Renewed) bool { return r.Status == store.Extended }) {
			votes[i].state, votes[i].recorded = granted, d.last
		}
		if now := decide(votes, int(d.last-d.first+1)); now.verdict == won {
			agreed = now
		}
		return agreed.verdict == won
	}, nil)
	return agreed
}
