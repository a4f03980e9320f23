package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// A candidate asks the nodes that refused it again, while the votes are split: others give
	// theirs back within a round trip. Pauses are random and grow.
	maxRetries = 8

	// maxChoices is how often the nodes are asked to choose tokens before their counters are
	// raised. After a raise the nodes have agreed, but report different tokens in listings.
	maxChoices = 3

	retryPause = 500 * time.Microsecond

	// Pause before the next attempt after a split vote.
	leastSplitPause = 2 * time.Millisecond
	mostSplitPause  = 100 * time.Millisecond
)

var errMode = fmt.Errorf("%w: a quorum has exclusive locks only: permits on a majority of the nodes do not add up to a limit; use a single store, or one with consensus such as etcd or ZooKeeper", store.ErrUnsupported)

// An attempt is one call of Acquire, or of Renew for tokens.
type attempt struct {
	s        *Store
	se       *session
	op       *op
	req      store.Request // as the nodes are asked
	want     time.Duration // TTL of the lease
	begin    time.Duration
	bell     int // -1 if the request does not wait
	votes    []vote
	errs     []error
	refusals []*store.Refusal
	ttl      time.Duration // least TTL that a node granted
	block    int           // largest block that a node granted
	waiters  int
	rounds   int
	choices  int // how often the nodes chose tokens
	retries  int
	narrow   bool // only as many nodes as needed were asked so far

	graceUntil time.Duration
}

// Acquire makes one attempt to take a name on a majority of the nodes; see [store.Store]. It
// returns an error that matches [store.ErrUnsupported], before any node is asked, if the mode is
// not exclusive, and a [*NodesError] if too few nodes answered.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if err := s.enter(ctx); err != nil {
		return store.Answer{}, err
	}
	defer s.life.Leave()
	if req.Mode != store.Exclusive {
		return store.Answer{}, errMode
	}
	if req.Floor >= store.MaxToken {
		return store.Answer{}, fmt.Errorf("%w: token floor %d: no tokens are left above it, they end at 2^53-1; find out where so high a floor comes from", store.ErrInvalid, req.Floor)
	}
	s.maxTTL.note(req.TTL)
	se := s.open(req.Name, req.ID)
	defer s.shut(se)
	a := s.newAttempt(se, req)
	answer, err := a.run(ctx)
	if err == nil && answer.Granted() {
		s.stats.granted(a.rounds)
	}
	return answer, err
}

func (s *Store) newAttempt(se *session, req store.Request) *attempt {
	a := &attempt{
		s: s, se: se, op: s.newOp(se), req: req, want: req.TTL, begin: s.now(), bell: -1,
		votes: make([]vote, len(s.nodes)), errs: make([]error, len(s.nodes)), refusals: make([]*store.Refusal, len(s.nodes)),
		ttl: store.MaxTime,
	}
	a.req.TTL = ttlAtNodes(req.TTL)
	a.req.Tokens = max(1, req.Tokens)
	a.req.Floor = max(req.Floor, s.tokens.propose(a.req.Tokens, a.begin)-1)
	for i := range a.votes {
		a.votes[i].state = idle
	}
	return a
}

func (a *attempt) run(ctx context.Context) (store.Answer, error) {
	s, se := a.s, a.se
	if a.req.Queue {
		alone := false
		if a.bell, alone = s.bellOf(se); alone {
			if refusal := a.askBell(ctx); refusal != nil {
				return store.Answer{Refusal: refusal}, nil
			}
		}
	}
	a.rounds++
	a.askMajority()
	for {
		d := s.rules.decide(a.votes, max(a.req.Tokens, a.block))
		if d.verdict == open && a.isStuck() {
			d.verdict = lost
		}
		switch d.verdict {
		case open:
			if a.narrow && !a.isPending() {
				a.widen()
			}
		case won:
			if a.vetoed() {
				return store.Answer{Refusal: a.refuse()}, nil
			}
			if first, last := se.block(); s.rules.repeated(a.votes, last) == won {
				return a.win(decision{won, first, last})
			}
			return a.win(d)
		case conflict:
			first, last := se.block()
			switch s.rules.repeated(a.votes, last) {
			case won:
				return a.win(decision{won, first, last})
			case open:
				if a.narrow {
					a.widen()
				}
				if a.anyHealthyPending() && a.wait(ctx, 0) {
					continue
				}
			}
			if a.narrow {
				a.widen()
			}
			if a.mayAgree() && a.wait(ctx, max(a.grace(), silence)) {
				continue
			}
			a.resolve(d)
		case lost:
			if a.bellPending() {
				break
			}
			if a.narrow && a.contested() {
				a.widen()
				break
			}
			if a.candidate() && a.contested() && a.retries < maxRetries {
				a.retry(ctx)
				break
			}
			if a.disagree() && (a.narrow || a.anyHealthyPending()) {
				if a.narrow {
					a.widen()
				}
				break // all nodes together know the token of the holder
			}
			// A few more replies show the holder as it is.
			if left := a.graceEnd() - s.now(); left > 0 && a.anyHealthyPending() && a.wait(ctx, left) {
				continue
			}
			return store.Answer{Refusal: a.refuse()}, nil
		case broken:
			return store.Answer{}, a.fail(ctx)
		}
		limit := time.Duration(0)
		if a.narrow {
			limit = s.hedge()
		}
		if !a.wait(ctx, limit) {
			switch {
			case ctx.Err() != nil:
				return store.Answer{}, a.fail(ctx)
			case a.narrow && a.op.ctx.Err() == nil:
				a.widen()
			default:
				a.expire()
			}
		}
	}
}

// askMajority asks as many nodes as are needed, the bell among them. The others are asked when
// one of these does not grant or does not answer in time. A lease that is held for longer gets
// their votes too: see completions.
func (a *attempt) askMajority() {
	s := a.s
	n := 0
	if a.bell >= 0 {
		if a.votes[a.bell].state == idle {
			a.ask(a.bell)
		}
		n++
	}
	for i := range s.nodes {
		node := s.order(a.req.Name, i)
		usable := s.nodes[node].healthy() || i == 0 && s.nodes[node].alive()
		if n < s.majority && node != a.bell && usable {
			a.ask(node)
			n++
		}
	}
	if a.narrow = true; n < s.majority {
		a.widen()
	}
}

// widen asks all nodes that were not asked yet. Those that have not answered are slow.
func (a *attempt) widen() {
	a.narrow = false
	for i := range a.votes {
		switch a.votes[i].state {
		case asked:
			a.s.nodes[i].isSlow()
		case idle:
			a.ask(i)
		}
	}
}

// isStuck reports whether the request is excluded, unless slow nodes decide otherwise. It does not
// keep its votes from others until those have answered. Only waiters do not exclude a request
// that does not wait.
func (a *attempt) isStuck() bool {
	answered, excluded := 0, false
	for i, v := range a.votes {
		switch v.state {
		case granted, refused:
			answered++
			r := a.refusals[i]
			excluded = excluded || r != nil && (len(r.Holders) > 0 || a.bell >= 0)
		case idle:
			return false
		}
	}
	return excluded && answered >= a.s.majority && !a.anyHealthyPending()
}

func (a *attempt) isPending() bool {
	for i := range a.votes {
		if a.votes[i].state == asked {
			return true
		}
	}
	return false
}

// askBell asks the bell alone, since the name is contended. It returns a refusal if that ends
// the attempt.
func (a *attempt) askBell(ctx context.Context) *store.Refusal {
	a.rounds++
	a.ask(a.bell)
	end := a.s.now() + a.s.opts.Timeout/4
	for a.votes[a.bell].state == asked {
		left := end - a.s.now()
		if left <= 0 || !a.wait(ctx, left) {
			return nil // ask the others too
		}
	}
	if a.votes[a.bell].state == refused {
		return a.refuse()
	}
	return nil
}

// ask sends Acquire to a node.
func (a *attempt) ask(i int) {
	req := a.req
	req.Queue = i == a.bell
	a.votes[i], a.refusals[i] = vote{state: asked}, nil
	a.se.noteAsked(i)
	a.op.start(i, func(ctx context.Context, n *node, r *reply) {
		r.answer, r.err = n.Acquire(ctx, req)
		if r.err == nil && r.answer.Granted() {
			if r.exclude = n.counts(ctx); a.se.isTainted(i, a.s.now()) && !a.s.rules.off(noOrder) {
				r.exclude = errTainted
			}
		}
	})
}

// renew sends Renew to a node, for tokens or for a floor.
func (a *attempt) renew(i int, floor int64, tokens int) {
	a.votes[i].state = asked
	renewal := store.Renewal{
		Name: a.req.Name, ID: a.req.ID, TTL: a.req.TTL, Mode: store.Exclusive,
		Tokens: tokens, Floor: floor,
	}
	a.op.start(i, func(ctx context.Context, n *node, r *reply) {
		r.floor = floor
		// Renewals of several callers arrive in any order. None may shorten the lease of another.
		renewal.TTL = max(renewal.TTL, ttlAtNodes(a.se.longest()))
		r.renewed, r.err = renewAt(ctx, n, renewal)
		if a.se.isTainted(i, a.s.now()) {
			r.exclude = errTainted
		}
	})
}

// renewAt extends one grant at a node.
func renewAt(ctx context.Context, n *node, renewal store.Renewal) (store.Renewed, error) {
	out, err := n.Renew(ctx, []store.Renewal{renewal})
	switch {
	case err != nil:
		return store.Renewed{}, err
	case len(out) != 1:
		return store.Renewed{}, fmt.Errorf("%d outcomes of one renewal", len(out))
	case out[0].Status == store.Unknown && out[0].Err != nil:
		return out[0], out[0].Err
	}
	return out[0], nil
}

// wait applies the next reply. It returns false if none came in time.
func (a *attempt) wait(ctx context.Context, limit time.Duration) bool {
	r, ok := a.op.next(ctx, limit)
	if ok {
		a.apply(&r)
	}
	return ok
}

// apply notes a reply.
func (a *attempt) apply(r *reply) {
	v := &a.votes[r.node]
	switch {
	case r.err != nil:
		v.state, a.errs[r.node] = failed, r.err
	case r.renewed.Status == store.Gone:
		v.state = refused
	case r.renewed.Status == store.Extended && r.exclude != nil:
		v.state, a.errs[r.node] = uncounted, r.exclude
	case r.renewed.Status == store.Extended:
		v.state = granted
		v.recorded = max(v.recorded, r.floor)
		if r.renewed.Tokens > 0 {
			v.first, v.recorded = r.renewed.Token, r.renewed.Token+int64(r.renewed.Tokens)-1
		}
		a.ttl = min(a.ttl, r.renewed.TTL)
	case !r.answer.Granted():
		v.state, a.refusals[r.node] = refused, r.answer.Refusal
		a.waiters = max(a.waiters, r.answer.Refusal.Waiters)
	default:
		v.state = granted
		if r.exclude != nil {
			v.state, a.errs[r.node] = uncounted, r.exclude
		} else {
			a.ttl = min(a.ttl, r.answer.TTL)
		}
		v.first, v.recorded = r.answer.Token, r.answer.Token+int64(r.answer.Tokens)-1
		a.block = max(a.block, r.answer.Tokens) // a repeated request may have more than it asks for
		a.waiters = max(a.waiters, r.answer.Waiters)
	}
}

// expire notes that the deadline of all calls is over.
func (a *attempt) expire() {
	for i := range a.votes {
		if a.votes[i].state == asked {
			a.votes[i].state, a.errs[i] = failed, errTimeout
			a.s.nodes[i].isSlow()
		}
	}
}

// mayAgree reports whether replies that are still missing could make another round needless.
func (a *attempt) mayAgree() bool {
	pending := 0
	for i, v := range a.votes {
		if v.state == asked && a.s.nodes[i].alive() {
			pending++
		}
	}
	if pending == 0 {
		return false
	}
	for _, v := range a.votes {
		same := 0
		for _, w := range a.votes {
			if v.state == granted && w.state == granted && v.first == w.first {
				same++
			}
		}
		if same > 0 && same+pending >= a.s.majority {
			return true
		}
	}
	return false
}

// grace is how long to wait for replies that would be good to have: as long as the call has
// taken so far.
func (a *attempt) grace() time.Duration { return max(time.Millisecond, a.s.now()-a.begin) }

// graceEnd returns when the grace is over that began with the first call of graceEnd.
func (a *attempt) graceEnd() time.Duration {
	if a.graceUntil == 0 {
		a.graceUntil = a.s.now() + a.grace()
	}
	return a.graceUntil
}

// resolve begins another round after a conflict: first it lets the nodes choose new tokens above
// all others, and if that did not help it raises their counters.
func (a *attempt) resolve(d decision) {
	a.rounds++
	if a.choices < maxChoices {
		// A little ahead of counters that follow a clock, so that they do not overtake it.
		floor := d.last + max(1000, 2*(a.s.now()-a.begin).Microseconds())<<(2*a.choices)
		a.choices++
		for i, v := range a.votes {
			if v.state == granted {
				a.renew(i, floor, a.req.Tokens)
			}
		}
		return
	}
	for i, v := range a.votes {
		if v.state == granted && v.first <= d.first {
			a.renew(i, d.first+int64(a.req.Tokens)-1, 0)
		}
	}
}

// retry asks the nodes that refused again, after a short random pause.
func (a *attempt) retry(ctx context.Context) {
	a.retries++
	pause := time.NewTimer(retryPause*time.Duration(a.retries)/2 + rand.N(retryPause*time.Duration(a.retries)))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	case <-a.op.ctx.Done():
	}
	for i, v := range a.votes {
		if v.state == refused && i != a.bell {
			a.ask(i)
		}
	}
}
