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
	errTwin      = errors.New("it is the same server as another node")
	errDowngrade = fmt.Errorf("%w: a quorum has exclusive locks only, so a lease cannot be downgraded to shared mode", store.ErrUnsupported)
)

// Renew extends grants on a majority of the nodes; see [store.Store]. Every grant has an outcome of its own, and
// the nodes are not asked for invalid renewals. Nodes that do not have a grant, for example because they have
// restarted, get it in the background. A lease that has ended is gone, even if nodes have not noticed that yet.
func (s *Store) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if err := s.life.EnterCall(ctx); err != nil {
		return nil, err
	}
	defer s.life.Exit()
	longest := time.Duration(0)
	for k := range grants {
		longest = max(longest, grants[k].TTL)
	}
	s.meetPeers(ctx, longest) // a lease is renewed even if another client has another list
	begin, outcomes := s.now(), make([]store.Renewed, len(grants))
	all, requests := make([]*renewing, 0, len(grants)), make([]store.Renewal, 0, len(grants))
	for k, grant := range grants {
		switch {
		case grant.Mode != store.Exclusive:
			outcomes[k].Err = errDowngrade
		case grant.Floor >= store.MaxToken:
			outcomes[k].Err = store.NoTokens(grant.Floor)
		default:
			r := s.newRenewing(grant, &outcomes[k])
			all, requests = append(all, r), append(requests, r.request)
		}
	}
	if len(all) == 0 && len(grants) > 0 {
		return nil, outcomes[0].Err
	}
	renew := func(ctx context.Context, n *node) ([]store.Renewed, error) {
		out, err := n.Renew(ctx, requests)
		for k, r := range all {
			if err == nil && r.se != nil {
				out[k] = r.renewedAt(n.index, out[k])
			}
		}
		return out, err
	}
	gather(ctx, s, s.nodes, renew, func(answer reply[[]store.Renewed]) bool {
		decided := true
		for k, r := range all {
			out := store.Renewed{Err: answer.err}
			if answer.err == nil {
				out = answer.v[k]
			}
			r.note(answer.node, out)
			// All nodes together may agree on new tokens.
			decided = decided && r.status() != store.Unknown && r.newBlock().verdict != conflict
		}
		return decided
	})
	for _, r := range all {
		*r.result = r.outcome(ctx, s, begin)
	}
	known := slices.ContainsFunc(outcomes, func(out store.Renewed) bool { return out.Status != store.Unknown })
	if !known && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return outcomes, nil
}

// Renew extends grants at a node. If it may have the server of another node, it has no outcome of its own.
func (n *node) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	out, err := n.Store.Renew(ctx, grants)
	if err == nil && len(out) != len(grants) {
		err = fmt.Errorf("%d outcomes of %d renewals", len(out), len(grants))
	}
	if err != nil {
		return nil, err
	}
	if err := n.checkTwin(ctx); err != nil {
		out = slices.Repeat([]store.Renewed{{Err: err}}, len(grants))
	}
	return out, nil
}

// A renewing is the renewal of one grant.
type renewing struct {
	ballot
	ttl     time.Duration  // of the lease
	request store.Renewal  // as the nodes are asked
	result  *store.Renewed // for the caller
	se      *session       // nil if the lease belongs to another handle
	over    bool           // the lease had ended before
	crowded bool           // other requests are queued, so there are no new tokens
	extends bool           // a majority has extended the lease; under the mutex of the session, like gone
	gone    []int          // nodes that have lost their vote
}

func (s *Store) newRenewing(grant store.Renewal, result *store.Renewed) *renewing {
	r := &renewing{ballot: newBallot(len(s.nodes)), ttl: grant.TTL, request: grant, result: result}
	if se := s.find(grant.Name, grant.ID); se != nil {
		se.mu.Lock()
		defer se.mu.Unlock()
		if r.over = se.last > 0 && !se.isValid(); se.held {
			r.se = se
			// Renewals of several callers arrive in any order, and none may shorten the lease.
			se.ttl = max(se.ttl, grant.TTL)
			r.request.TTL = se.ttl
			for i := range se.seats {
				if se.hasVote(i) && se.seats[i].recorded < se.floor {
					r.request.Floor = max(r.request.Floor, se.floor)
				}
			}
		}
	}
	r.request.TTL = ttlAtNodes(r.request.TTL)
	return r
}

// renewedAt records what a node has, and returns its reply as it counts. It is called for every reply,
// even if the outcome is known already.
func (r *renewing) renewedAt(i int, out store.Renewed) store.Renewed {
	se := r.se
	se.mu.Lock()
	defer se.mu.Unlock()
	t, voted := &se.seats[i], se.hasVote(i)
	switch {
	case out.Status == store.Gone:
		if !voted {
			return store.Renewed{Err: errWithout}
		}
		r.gone = append(r.gone, i)
		r.repair()
	case out.Status == store.Extended && !voted: // it may have the vote of an earlier attempt, which is being given back
		return store.Renewed{Err: errBarred}
	case out.Status == store.Extended:
		t.recorded = max(t.recorded, r.request.Floor, out.Token+int64(out.Tokens)-1)
	}
	return out
}

// note notes the reply of a node.
func (r *renewing) note(i int, out store.Renewed) {
	switch out.Status {
	case store.Gone:
		r.deny(i, refused, errWithout)
	case store.Extended:
		r.ballot.grant(i, out.Token, out.Tokens, r.request.Floor, out.TTL)
		r.crowded = r.crowded || out.Tokens == 0
	default:
		r.deny(i, failed, cmp.Or(out.Err, errUnknown))
	}
}

// status applies the rules Over and Renewal to the replies so far.
func (r *renewing) status() store.Status {
	if r.over {
		return store.Gone
	}
	return renewed(len(r.votes), r.count(granted), r.count(refused))
}

// newBlock returns the decision about new tokens. It is open if there are none.
func (r *renewing) newBlock() decision {
	if r.request.Tokens == 0 || r.crowded {
		return decision{verdict: open}
	}
	return decide(r.votes, r.block)
}

// outcome returns the outcome of a renewal, and updates the lease.
func (r *renewing) outcome(ctx context.Context, s *Store, begin time.Duration) (out store.Renewed) {
	switch out.Status = r.status(); out.Status {
	case store.Unknown:
		out.Err = r.failure(s)
	case store.Extended:
		out.TTL = min(r.ttl, validUntil(begin, s.now(), r.shortest)-begin)
		d := r.newBlock()
		if d.verdict == conflict {
			d = r.raise(ctx, s, begin, r.request, d)
		}
		if d.verdict == won {
			out.Token, out.Tokens = d.first, int(d.last-d.first+1)
		}
	}
	if r.se == nil {
		return out
	}
	se := r.se
	se.mu.Lock()
	defer se.mu.Unlock()
	if out.Status == store.Extended && !se.isValid() { // it has ended meanwhile, so votes may have been given back
		out = store.Renewed{Status: store.Gone}
	}
	switch {
	case !se.held:
	case out.Status == store.Gone && se.attempt == nil:
		se.held, se.want = false, wantNothing
		se.settleAll()
	case out.Status == store.Extended:
		if out.Tokens > 0 {
			se.first, se.last = out.Token, out.Token+int64(out.Tokens)-1
		}
		se.until, se.floor = max(se.until, begin+out.TTL), max(se.floor, r.request.Floor, se.last)
		r.extends = true
	}
	r.repair()
	return out
}

// repair requests the votes that the lease does not have. It does nothing while nodes have lost their
// votes and it is not known that a majority still has the lease, because a lost lease is not revived.
func (r *renewing) repair() {
	if len(r.gone) > 0 && !r.extends {
		return
	}
	for _, i := range r.gone {
		r.se.seats[i].granted = false
	}
	r.gone = nil
	r.se.repair()
}
