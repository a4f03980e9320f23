package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
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
	b := &renewBatch{s: s, begin: s.now(), all: make([]renewing, len(grants)), ready: make(chan struct{}, 1)}
	for i := range grants {
		if grants[i].Mode != store.Exclusive {
			return nil, errDowngrade
		}
		if grants[i].Floor >= store.MaxToken {
			return nil, store.NoTokens(grants[i].Floor)
		}
		s.maxTTL.note(grants[i].TTL)
		b.all[i].init(s, grants[i])
	}
	b.run(ctx)
	outcomes, known, invalid := make([]store.Renewed, len(grants)), 0, 0
	for i := range b.all {
		outcomes[i] = b.outcome(ctx, &b.all[i])
		if outcomes[i].Status != store.Unknown {
			known++
		}
		if errors.Is(outcomes[i].Err, store.ErrInvalid) {
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

// A renewBatch is one call of Renew. Each node gets all renewals in one message.
type renewBatch struct {
	s     *Store
	begin time.Duration
	ready chan struct{} // gets a value when all outcomes are known

	mu  sync.Mutex
	all []renewing
}

// A renewing is the renewal of one grant.
type renewing struct {
	grant   store.Renewal
	request store.Renewal // as the nodes are asked
	se      *session      // nil if the lease belongs to another handle
	votes   []vote
	errs    []error
	without []int // nodes that do not have the grant
	gone    int   // those of them that had given their vote
	over    bool  // the lease had ended before
	crowded bool  // other requests are queued, so there are no new tokens
	ttl     time.Duration
	repairs bool // the lease was extended, so nodes without the grant get it
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

// run sends the renewals to all nodes, and waits until all outcomes are known, the time limit of a
// call is over or ctx ends. Later replies are used for repairs.
func (b *renewBatch) run(ctx context.Context) {
	s := b.s
	requests := make([]store.Renewal, len(b.all))
	for k := range b.all {
		requests[k] = b.all[k].request
	}
	pending := len(s.nodes)
	for i, n := range s.nodes {
		s.life.Add()
		s.workers.run(s.life.Closing, func() {
			defer s.life.Leave()
			out, err := n.renew(requests)
			b.mu.Lock()
			defer b.mu.Unlock()
			decided := true
			for k := range b.all {
				if err != nil {
					b.all[k].note(i, store.Renewed{Err: err})
				} else {
					b.all[k].note(i, out[k])
				}
				decided = decided && b.all[k].status() != store.Unknown
			}
			if pending--; decided || pending == 0 {
				select {
				case b.ready <- struct{}{}:
				default:
				}
			}
		})
	}
	timeout := time.NewTimer(s.opts.Timeout)
	defer timeout.Stop()
	select {
	case <-b.ready:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

// renew extends grants at a node.
func (n *node) renew(requests []store.Renewal) (out []store.Renewed, err error) {
	err = n.call(&n.others, func(ctx context.Context) (err error) {
		out, err = n.Renew(ctx, requests)
		if err == nil && len(out) != len(requests) {
			err = fmt.Errorf("%d outcomes of %d renewals", len(out), len(requests))
		}
		return err
	})
	return out, err
}

// note notes the reply of a node.
func (r *renewing) note(i int, out store.Renewed) {
	v := &r.votes[i]
	voted := true
	if r.se != nil {
		r.se.mu.Lock()
		defer r.se.mu.Unlock()
		voted = r.se.hasVote(i)
	}
	switch out.Status {
	case store.Unknown:
		v.state, r.errs[i] = failed, cmp.Or(out.Err, errUnknown)
		return
	case store.Gone:
		v.state, r.errs[i] = refused, errWithout
		if voted {
			r.gone++
		}
		if r.se != nil {
			r.se.seats[i].granted = false
		}
	case store.Extended:
		if !voted { // it may have the vote of an earlier attempt, which is being given back
			v.state = uncounted
			break
		}
		*v = vote{granted, out.Token, max(r.request.Floor, out.Token+int64(out.Tokens)-1)}
		r.crowded = r.crowded || out.Tokens == 0
		r.ttl = min(r.ttl, out.TTL)
		if r.se != nil {
			r.se.seats[i].recorded = max(r.se.seats[i].recorded, v.recorded)
		}
		return
	}
	r.without = append(r.without, i)
	if r.repairs {
		r.se.repair(i)
	}
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
func (b *renewBatch) outcome(ctx context.Context, r *renewing) (out store.Renewed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, se := b.s, r.se
	switch out.Status = r.status(); out.Status {
	case store.Unknown:
		out.Err = r.failure(s)
		return out
	case store.Gone:
		if se != nil {
			se.mu.Lock()
			defer se.mu.Unlock()
			if se.held && se.attempt == nil {
				se.held = false
				se.setWant(wantNothing)
			}
		}
		return out
	}
	out.TTL = min(r.grant.TTL, validUntil(b.begin, s.now(), r.ttl)-b.begin)
	if r.grant.Tokens > 0 && !r.crowded {
		d := decide(r.votes, r.grant.Tokens)
		if d.verdict == conflict {
			votes := append([]vote(nil), r.votes...)
			b.mu.Unlock()
			d = s.raise(ctx, b.begin+s.opts.Timeout, r.request, votes, d)
			b.mu.Lock()
		}
		if d.verdict == won {
			out.Token, out.Tokens = d.first, int(d.last-d.first+1)
		}
	}
	if se == nil {
		return out
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	if !se.held {
		return out
	}
	if out.Tokens > 0 {
		se.first, se.last = out.Token, out.Token+int64(out.Tokens)-1
	}
	se.until, se.floor = max(se.until, b.begin+out.TTL), max(se.floor, r.grant.Floor, se.last)
	r.repairs = true
	for _, i := range r.without {
		se.repair(i)
	}
	return out
}

// failure returns why the outcome of a renewal is unknown.
func (r *renewing) failure(s *Store) error {
	confirmed := 0
	errs := append([]error(nil), r.errs...)
	for i, v := range r.votes {
		switch {
		case v.state == granted:
			confirmed++
		case v.state == asked:
			errs[i] = errTimeout
		case v.state == uncounted:
			errs[i] = errBarred
		case errors.Is(errs[i], store.ErrInvalid):
			return errs[i]
		}
	}
	return s.failures(errs, confirmed)
}

// raise makes nodes agree on a token: it raises the counters of those that are behind, and waits for
// a majority. It returns the decision that follows. It changes votes.
func (s *Store) raise(ctx context.Context, deadline time.Duration, renewal store.Renewal, votes []vote, d decision) decision {
	renewal.Tokens, renewal.Floor = 0, d.last
	type raised struct {
		node int
		out  store.Renewed
		err  error
	}
	replies := make(chan raised, len(votes))
	pending := 0
	for i, v := range votes {
		if v.state != granted || v.first > d.first || v.recorded >= d.last {
			continue
		}
		votes[i].state = asked
		pending++
		s.life.Add()
		s.workers.run(s.life.Closing, func() {
			defer s.life.Leave()
			out, err := s.nodes[i].renew([]store.Renewal{renewal})
			if err != nil {
				out = make([]store.Renewed, 1)
			}
			replies <- raised{i, out[0], err}
		})
	}
	timeout := time.NewTimer(deadline - s.now())
	defer timeout.Stop()
	for ; pending > 0; pending-- {
		select {
		case r := <-replies:
			v := &votes[r.node]
			switch r.out.Status {
			case store.Extended:
				v.state, v.recorded = granted, d.last
			case store.Gone:
				v.state = refused
			default:
				v.state = failed
			}
		case <-timeout.C:
			return decision{verdict: broken}
		case <-ctx.Done():
			return decision{verdict: broken}
		}
		if now := decide(votes, int(d.last-d.first+1)); now.verdict == won {
			return now
		}
	}
	return decision{verdict: broken}
}
