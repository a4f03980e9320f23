package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// While the votes are split, a candidate repeats its request to the nodes that refused it,
	// until its deadline. The other requests give their votes back within a round trip. The
	// pauses are random and double up to a maximum of 32 ms.
	retryPause   = 250 * time.Microsecond
	maxDoublings = 7

	// maxChoices is how often the nodes are asked to choose tokens before their counters are
	// raised. After a raise the nodes agree, but report different tokens in listings.
	maxChoices = 3
)

var errUnknown = errors.New("the outcome is unknown")

var errMode = fmt.Errorf("%w: a quorum has exclusive locks only: permits on a majority of the nodes do not add up to a limit; use a single store, or one with consensus such as etcd or ZooKeeper", store.ErrUnsupported)

// An attempt is one call of Acquire, or one call of Renew that requests tokens.
type attempt struct {
	s        *Store
	se       *session
	op       *op
	req      store.Request // as the nodes are asked
	want     time.Duration // TTL of the lease
	floor    int64         // that the caller gave
	begin    time.Duration
	bell     int  // the node whose queue the request joins; -1 if it does not wait
	alone    bool // only the bell has been asked so far
	overdue  bool // all nodes were asked, and some take longer than the hedge
	votes    []vote
	errs     []error
	refusals []*store.Refusal
	ttl      time.Duration // shortest TTL that a node granted
	block    int           // largest block that a node granted
	waiters  int
	rounds   int
	choices  int // how often the nodes chose tokens
	retries  int
	baton    *baton // that the other nodes are asked for; nil if they are asked for votes of this identity
	passed   *baton // that came with the bell's grant
	retried  uint16 // nodes that have refused the request and were asked again, as a bit set
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
		return store.Answer{}, store.NoTokens(req.Floor)
	}
	s.maxTTL.note(req.TTL)
	se := s.open(req.Name, req.ID)
	defer s.shut(se)
	se.use()
	s.forgetBaton(se)
	s.adopt(ctx, se)
	a := s.newAttempt(se, req)
	answer, err := a.run(ctx)
	if err == nil && answer.Granted() {
		s.stats.granted(a.rounds)
	}
	return answer, err
}

func (s *Store) newAttempt(se *session, req store.Request) *attempt {
	a := &attempt{
		s: s, se: se, op: s.newOp(se), req: req, want: req.TTL, floor: req.Floor, begin: s.now(), bell: -1,
		votes: make([]vote, len(s.nodes)), errs: make([]error, len(s.nodes)), refusals: make([]*store.Refusal, len(s.nodes)),
		ttl: store.MaxTime,
	}
	a.req.TTL = ttlAtNodes(req.TTL)
	a.req.Tokens = max(1, req.Tokens)
	a.req.Floor = max(req.Floor, s.tokens.propose(a.begin)-1)
	return a
}

// run asks nodes until their votes decide. If the name is contended, it asks the bell alone
// first. Then it asks as many nodes as are needed, and then all.
func (a *attempt) run(ctx context.Context) (store.Answer, error) {
	if a.req.Queue {
		a.bell, a.alone = a.s.bellOf(a.se)
	}
	if a.alone {
		a.rounds++
		a.ask(a.bell)
	} else {
		a.askMajority()
	}
	for {
		if a.passed != nil {
			if answer, ok := a.takeBaton(); ok {
				return answer, nil
			}
		}
		d := a.decide()
		switch {
		case d.verdict == won && a.isLate() && a.op.ctx.Err() == nil:
			a.restart()
		case d.verdict == won:
			return a.win(d)
		case d.verdict == broken:
			return store.Answer{}, a.fail(ctx)
		case a.alone && a.votes[a.bell].state == refused && !a.holds():
			return store.Answer{Refusal: a.refuse()}, nil
		case d.verdict == lost && a.standing() == granted:
			if !a.askAll() { // all nodes together show whether there is a holder
				a.retry(ctx)
			}
		case d.verdict == lost && a.standing() == refused:
			// If the nodes report different tokens for the holder, ask all of them: together they
			// know its token.
			if !a.disagree() || !a.askAll() && !a.isPending() {
				if a.holds() {
					return store.Answer{}, a.fail(ctx)
				}
				return store.Answer{Refusal: a.refuse()}, nil
			}
		case d.verdict == conflict:
			// All nodes together may agree, and know the tokens of a request that is repeated.
			if !a.askAll() && (a.count(asked) == 0 || a.s.now()-a.begin > a.s.opts.Timeout/4) {
				a.resolve(d)
			}
		case d.verdict == open && !a.isPending() && a.alone:
			a.askMajority()
		case d.verdict == open && !a.isPending():
			a.askAll()
		}
		if a.wait(ctx, a.s.hedge()) {
			continue
		}
		switch {
		case ctx.Err() != nil:
			return store.Answer{}, a.fail(ctx)
		case a.op.ctx.Err() != nil:
			a.expire()
		default:
			a.markSlow()
			a.overdue = !a.askAll()
		}
	}
}

// decide returns the decision that follows from the votes so far. A request that is excluded does
// not wait for nodes that failed before. It does wait for slow nodes: otherwise two requests
// could give way to each other because each saw the votes of the other, and neither would be
// granted. A request that is repeated during its lease gets the same tokens.
func (a *attempt) decide() decision {
	s := a.s
	n := max(a.req.Tokens, a.block)
	if a.baton != nil { // the other tokens are for the next holders
		n = a.req.Tokens
	}
	d := s.rules.decide(a.votes, n)
	switch d.verdict {
	case open:
		if !a.overdue {
			break
		}
		votes := append([]vote(nil), a.votes...)
		for i := range votes {
			if votes[i].state == asked && s.nodes[i].failing.Load() {
				votes[i].state = failed
			}
		}
		if s.rules.decide(votes, a.req.Tokens).verdict == lost {
			d.verdict = lost
		}
	case won, conflict:
		if first, last := a.se.block(); s.rules.repeated(a.votes, last) {
			return decision{won, first, last}
		}
	}
	return d
}

// isLate reports whether the lease would already be over.
func (a *attempt) isLate() bool {
	now := a.s.now()
	return now-a.begin >= min(a.want, a.s.rules.validity(a.ttl, now-a.begin))
}

// restart repeats the request at the nodes that granted it, which restarts their TTLs. It is
// needed because a grant that the bell pushed lasts for a short time only.
func (a *attempt) restart() {
	a.begin, a.ttl = a.s.now(), store.MaxTime
	a.rounds++
	for i, v := range a.votes {
		if v.state == granted {
			a.ask(i)
		}
	}
}

// standing returns what to do if the votes are split: continue if granted, give way if refused,
// wait for a reply if asked. One node decides: the first node that answers, in the order of the
// name. So exactly one of several requests continues.
func (a *attempt) standing() state {
	h, seen := a.holder()
	// Votes that are passed on without the bell's vote are about to be given back.
	orphaned := a.bell >= 0 && a.votes[a.bell].state == granted && isBaton(a.req.Name, h.ID)
	if seen >= a.s.majority && !orphaned || a.op.ctx.Err() != nil {
		return refused
	}
	for i := range a.votes {
		n := a.s.order(a.req.Name, i)
		switch a.votes[n].state {
		case granted, uncounted:
			return granted
		case refused:
			return refused
		case asked:
			if !a.s.nodes[n].failing.Load() {
				return asked
			}
		}
	}
	return refused
}

// holds reports whether the request is a repeated one whose lease is valid. It must not give back
// the votes of that lease, whatever votes other requests have: some of them may not count.
func (a *attempt) holds() bool {
	_, _, valid := a.se.further(a.s.now())
	return valid
}

// askMajority asks as many nodes as are needed if all are healthy and have answered earlier
// attempts, and otherwise all. A lease gets the votes of the other nodes later: see completeLater.
func (a *attempt) askMajority() {
	s := a.s
	a.alone = false
	if a.startBaton() {
		a.askAll()
		return
	}
	for i, n := range s.nodes {
		if !n.healthy() || a.se.isUnheard(i) && a.votes[i].state == idle {
			a.askAll()
			return
		}
	}
	a.rounds++
	n := 0
	if a.bell >= 0 {
		if a.votes[a.bell].state == idle {
			a.ask(a.bell)
		}
		n++
	}
	for i := 0; n < s.majority; i++ {
		if node := s.order(a.req.Name, i); node != a.bell {
			a.ask(node)
			n++
		}
	}
}

// askAll asks all nodes that were not asked yet, and reports whether there were any.
func (a *attempt) askAll() (any bool) {
	a.alone = false
	for i := range a.votes {
		if a.votes[i].state == idle {
			any = true
			a.ask(i)
		}
	}
	if any {
		a.rounds++
	}
	return any
}

// isPending reports whether a reply is missing from a node that is not slow.
func (a *attempt) isPending() bool {
	for i, v := range a.votes {
		if v.state == asked && !(a.overdue && a.s.nodes[i].slow.Load()) {
			return true
		}
	}
	return false
}

// markSlow records that the nodes that have not answered take longer than usual.
func (a *attempt) markSlow() {
	for i, v := range a.votes {
		if v.state == asked {
			a.s.nodes[i].slow.Store(true)
		}
	}
}

// ask sends Acquire to a node.
func (a *attempt) ask(i int) {
	req := a.req
	req.Queue = i == a.bell
	if a.alone { // the bell chooses the token, even if it pushes the grant later
		req.Floor = a.floor
	} else if a.bell >= 0 && a.votes[a.bell].state == granted {
		req.Floor = max(a.floor, a.votes[a.bell].first-1)
	}
	if a.baton != nil && i != a.bell {
		req.ID, req.TTL, req.Tokens = a.baton.id, a.baton.ttl, passTokens
	}
	a.votes[i], a.refusals[i] = vote{state: asked}, nil
	a.se.noteAsked(i)
	a.op.start(i, func(ctx context.Context, n *node, r *reply) {
		if i == a.bell && a.s.passes {
			r.answer, r.note, r.err = a.s.acquireNoted(ctx, n, req)
		} else {
			r.answer, r.err = n.Acquire(ctx, req)
		}
		if r.err == nil {
			a.se.noteAnswer(i)
		}
		if a.baton != nil && i != a.bell && r.err == nil && r.answer.Granted() && r.answer.TTL < req.TTL {
			a.se.mu.Lock()
			a.baton.brief = true
			a.se.mu.Unlock()
		}
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
	a.retried &^= 1 << i // it has granted the request since
	renewal := store.Renewal{
		Name: a.req.Name, ID: a.req.ID, TTL: a.req.TTL, Mode: store.Exclusive,
		Tokens: tokens, Floor: floor,
	}
	shared := a.baton != nil && i != a.bell
	if shared {
		renewal.ID, renewal.TTL, renewal.Tokens = a.baton.id, a.baton.ttl, min(tokens, 1)*passTokens
	}
	a.op.start(i, func(ctx context.Context, n *node, r *reply) {
		r.floor = floor
		if !shared {
			renewal.TTL = ttlAtNodes(a.se.lengthen(a.want))
		}
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
	case out[0].Status == store.Unknown:
		return out[0], cmp.Or(out[0].Err, errUnknown)
	}
	return out[0], nil
}

// wait applies the next reply. It returns false if none arrived in time.
func (a *attempt) wait(ctx context.Context, limit time.Duration) bool {
	r, ok := a.op.next(ctx, limit, min(a.op.awaited(), a.s.majority-a.count(granted)))
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
		} else {
			a.choices = maxChoices // other requests are queued, so it will not choose tokens
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
		a.passed = r.note
		a.block = max(a.block, r.answer.Tokens) // a repeated request may have more tokens than it asks for
		a.waiters = max(a.waiters, r.answer.Waiters)
	}
}

// expire records that the deadline of all calls has passed. A node that was asked again has refused
// the request before.
func (a *attempt) expire() {
	for i := range a.votes {
		switch {
		case a.votes[i].state != asked:
		case a.retried&(1<<i) != 0:
			a.votes[i].state = refused
		default:
			a.votes[i].state, a.errs[i] = failed, errTimeout
			a.s.nodes[i].fail(errTimeout)
		}
	}
}

// resolve starts another round after a conflict. At first it lets the nodes choose new tokens
// above all others. If that did not help, it raises their counters.
func (a *attempt) resolve(d decision) {
	a.rounds++
	if a.choices < maxChoices {
		// The floor is a little above all counters, in case requests for other names are served
		// in between. At first the difference is small, because a node reserves no blocks of
		// tokens far ahead of its clock. In the end it is half a second, because nodes whose
		// counters follow their clocks closely receive the message at different times.
		floor := d.last
		for _, v := range a.votes {
			if v.state == granted {
				floor = max(floor, v.recorded)
			}
		}
		floor += 8 << (8 * a.choices)
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

// retry repeats the request at the nodes that refused it, after a short random pause.
func (a *attempt) retry(ctx context.Context) {
	pause := retryPause << min(a.retries, maxDoublings)
	a.retries++
	timer := time.NewTimer(pause + rand.N(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	case <-a.op.ctx.Done():
		return
	}
	for i, v := range a.votes {
		if v.state == refused && i != a.bell {
			a.retried |= 1 << i
			a.ask(i)
		}
	}
}

// hedge returns how long to wait for the nodes that were asked before others are asked: several
// times as long as usual, and by default at least 50 ms.
func (s *Store) hedge() time.Duration {
	return min(s.opts.Timeout/4, max(s.opts.Timeout/10, 8*time.Duration(s.trip.Load())))
}

// noteRoundTrip records how long a call with one round took.
func (s *Store) noteRoundTrip(d time.Duration) {
	if old := s.trip.Load(); old > 0 {
		d = (7*time.Duration(old) + d) / 8
	}
	s.trip.Store(int64(d)) // a lost update does no harm
}
