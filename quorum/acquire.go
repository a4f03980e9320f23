package quorum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// While the votes are split, a candidate repeats its request to the nodes that refused it. The other requests
	// give their votes back within a round trip. The pauses are random and double up to a maximum of 32 ms.
	retryPause   = 250 * time.Microsecond
	maxDoublings = 7

	// nearby is by how much the token of a node may be above the last one of the client: some seconds,
	// if counters follow clocks in microseconds.
	nearby = 4_000_000

	// A request that gave votes back although it found no holder asks again after a random pause,
	// which doubles with each such attempt.
	leastSplitPause = time.Millisecond
	mostSplitPause  = 100 * time.Millisecond
)

var (
	errMode = fmt.Errorf("%w: a quorum has exclusive locks only: permits on a majority of the nodes do not add up to a limit; use a single store, or one with consensus such as etcd or ZooKeeper", store.ErrUnsupported)
	errLeft = errors.New("quorum store: the request was cancelled by Leave or Release")
)

// An attempt is one call of Acquire. Its caller notes the replies of the nodes.
type attempt struct {
	ballot
	se       *session
	req      store.Request // as the nodes are asked
	floor    int64         // that nodes may be asked for, to choose equal tokens
	ttl      time.Duration // of the lease
	begin    time.Duration
	replies  chan reply[acquired] // also gets a value when the attempt is cancelled
	refusals []*store.Refusal
	waiters  int
	bell     int // the node whose queue the request joins; -1 if it does not wait
	retries  int
	strict   bool // the request waits if the bell refuses it, even if other nodes grant it
}

// Acquire makes one attempt to take a name on a majority of the nodes; see [store.Store]. It
// returns an error that matches [store.ErrUnsupported], before any node is asked, if the mode is
// not exclusive, and a [*NodesError] if too few nodes answered.
func (s *Store) Acquire(ctx context.Context, req store.Request) (answer store.Answer, err error) {
	if err := s.life.EnterCall(ctx); err != nil {
		return answer, err
	}
	defer s.life.Exit()
	if req.Mode != store.Exclusive {
		return answer, errMode
	}
	if req.Floor >= store.MaxToken {
		return answer, store.NoTokens(req.Floor)
	}
	begin := s.now()
	if err := s.meetPeers(ctx, req.TTL); err != nil {
		return answer, err
	}
	se := s.open(req.Name, req.ID, false)
	defer s.shut(se)
	select { // an earlier call of the same identity may be in progress
	case se.turn <- struct{}{}:
		defer func() { <-se.turn }()
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	a := &attempt{
		ballot: newBallot(len(s.nodes)), se: se, req: req, ttl: req.TTL, begin: begin, bell: -1,
		replies: make(chan reply[acquired], len(s.nodes)+1), refusals: make([]*store.Refusal, len(s.nodes)),
	}
	a.req.TTL, a.req.Tokens = ttlAtNodes(req.TTL), max(1, req.Tokens)
	se.mu.Lock()
	defer se.mu.Unlock()
	defer a.finish()
	return a.run(ctx)
}

// run asks the nodes, and waits for replies until they decide. It unlocks the mutex meanwhile.
func (a *attempt) run(ctx context.Context) (answer store.Answer, err error) {
	s, se := a.se.store, a.se
	first := -1 // the node that is asked before the others
	if a.req.Queue {
		waits := se.want == wantPlace
		a.bell = se.chooseBell()
		if a.strict = !waits || se.woken; a.strict && (waits || se.name.isCrowded(a.begin)) {
			first = a.bell
		}
	}
	a.floor = max(a.req.Floor, se.name.last.Load())
	se.attempt, se.want, se.woken, se.closing = a, wantVotes, false, store.Held
	if first >= 0 {
		a.ask(first)
		a.await(ctx, s.opts.Timeout/10, func() bool { return a.votes[first].state != asked }) // it may hang
	}
	if !a.mustWait() && ctx.Err() == nil {
		for i := range a.votes {
			if i != first {
				a.ask(i)
			}
		}
	}
	for lingered := false; ; {
		a.await(ctx, s.opts.Timeout, func() bool { return a.decide().verdict != open || a.mustWait() })
		switch d := a.decide(); {
		case se.attempt != a:
			return answer, errLeft
		case ctx.Err() != nil:
			return answer, ctx.Err()
		case a.mustWait():
			return store.Answer{Refusal: a.refuse()}, nil
		case d.verdict == won:
			return a.win(d)
		case d.verdict == open: // the time limit is over
			for i := range a.votes {
				if a.votes[i].state == asked {
					a.deny(i, failed, errTimeout)
				}
			}
		case d.verdict == broken, d.verdict == lost && se.isValid():
			if a.count(refused)+a.count(uncounted) > 0 && !se.isValid() {
				se.want, se.bell = wantPlace, max(0, a.bell) // others want the name, so its votes are given back
			}
			return answer, a.failure(s) // other votes stay: the caller repeats the request, or leaves
		case d.verdict == lost && a.isCandidate():
			a.askAgain(ctx)
		case !lingered && a.count(asked) > 0 && !(d.verdict == lost && a.knowsHolder()):
			// All nodes together may agree on a token, or do without one whose clock is far ahead. It takes
			// a round trip to make a majority agree, for which half of the time is left. And only they know
			// the token of another holder.
			lingered = true
			took := s.now() - a.begin
			a.await(ctx, min(max(took, s.opts.Timeout/10), s.opts.Timeout/2-took), func() bool { return a.decide().verdict != d.verdict || a.count(asked) == 0 })
		case d.verdict == lost:
			return store.Answer{Refusal: a.refuse()}, nil
		default:
			se.mu.Unlock()
			d = a.raise(ctx, s, a.begin, store.Renewal{Name: a.req.Name, ID: a.req.ID, TTL: a.req.TTL, Mode: store.Exclusive}, d)
			se.mu.Lock()
			if d.verdict == won && se.attempt == a {
				return a.win(d)
			} // otherwise a node that could not be raised no longer counts, and the others may still agree
		}
	}
}

// ask asks a node.
func (a *attempt) ask(i int) {
	a.votes[i], a.errs[i], a.refusals[i] = vote{}, errPending, nil
	se, req := a.se, a.req
	if se.name.isStuck(se.store.nodes[i]) {
		a.deny(i, failed, errSkipped)
		return
	}
	req.Queue = i == a.bell
	// A store may not push a grant to a waiter that has a floor.
	if !req.Queue || !se.name.isCrowded(a.begin) {
		req.Floor = a.floor
	}
	// The other nodes choose the token of the bell, unless its clock is far ahead.
	if a.bell >= 0 && a.votes[a.bell].state == granted && a.floor > 0 && a.votes[a.bell].first-a.floor < nearby {
		req.Floor = max(req.Floor, a.votes[a.bell].first-1)
	}
	se.post(i, func() {
		if se.attempt != a {
			if !se.isValid() {
				return // it was not granted
			}
			req = se.further(req.TTL)
		}
		v, err := se.acquireAt(i, req)
		a.replies <- reply[acquired]{i, v, err}
	})
}

// await notes replies until done returns true, the attempt is cancelled, the limit or that of the call is
// over, or ctx ends. It unlocks the mutex meanwhile.
func (a *attempt) await(ctx context.Context, limit time.Duration, done func() bool) {
	se, s := a.se, a.se.store
	if done() || se.attempt != a {
		return
	}
	se.mu.Unlock()
	defer se.mu.Lock()
	receive(ctx, min(limit, a.begin+s.opts.Timeout-s.now()), a.replies, math.MaxInt, func(r reply[acquired]) bool {
		se.mu.Lock()
		defer se.mu.Unlock()
		a.note(r)
		return done() || se.attempt != a
	})
}

// note notes the reply of a node.
func (a *attempt) note(r reply[acquired]) {
	a.waiters = max(a.waiters, r.v.Waiters)
	switch i := r.node; {
	case i < 0: // cancelled
	case r.err != nil:
		a.deny(i, failed, r.err)
	case !r.v.Granted():
		a.deny(i, refused, errRefused)
		a.refusals[i] = r.v.Refusal
		a.waiters = max(a.waiters, r.v.Refusal.Waiters)
	case r.v.exclude != nil:
		a.deny(i, uncounted, r.v.exclude)
	default:
		a.grant(i, r.v.Token, r.v.Tokens, 0, r.v.TTL)
	}
}

// decide returns the decision that follows from the votes so far. A request that is repeated
// during its lease gets the same tokens.
func (a *attempt) decide() decision {
	d := decide(a.votes, max(1, a.block))
	if se := a.se; (d.verdict == won || d.verdict == conflict) && se.held && sameBlock(a.votes, se.last) {
		return decision{won, se.first, se.last}
	}
	return d
}

// finish ends the attempt. Votes that the identity does not want are given back, now or when they arrive.
func (a *attempt) finish() {
	se := a.se
	if se.attempt == a {
		se.attempt = nil
	}
	se.settleAll()
	if !se.isValid() {
		se.held, se.until = false, se.store.now()+max(a.ttl, se.store.caps.Heartbeat)
	}
}

// win ends the attempt with a grant. Votes that arrive later are kept.
func (a *attempt) win(d decision) (store.Answer, error) {
	se, now := a.se, a.se.store.now()
	until := min(a.begin+a.ttl, validUntil(a.begin, now, a.shortest))
	if now >= until {
		return store.Answer{}, fmt.Errorf("quorum store: the replies took %v, and the lease would last only %v from the request", now-a.begin, until-a.begin)
	}
	if !se.isValid() {
		se.ttl = 0
	}
	if a.waiters > 0 {
		se.name.noteCrowd(now)
	}
	se.held, se.splits, se.repairPause, se.ttl, se.req = true, 0, leastRepairPause, max(se.ttl, a.ttl), a.req
	se.name.last.Store(d.last)
	se.first, se.last, se.floor, se.until = d.first, d.last, max(se.floor, d.last), until
	return store.Answer{Token: d.first, Tokens: int(d.last - d.first + 1), TTL: until - a.begin, Waiters: a.waiters}, nil
}

// isCandidate reports whether the request goes on although the votes are split. One node decides: the first one that
// has answered, in the order of the name. So one of several requests goes on and the others give their votes back.
func (a *attempt) isCandidate() bool {
	s := a.se.store
	if len(a.holder()) >= s.majority || s.now()-a.begin > s.opts.Timeout/4 {
		return false
	}
	for _, n := range s.order(a.req.Name) {
		switch a.votes[n.index].state {
		case granted, uncounted:
			return true
		case refused:
			return false
		}
	}
	return false
}

// askAgain repeats the request after a pause, at the nodes that refused it.
func (a *attempt) askAgain(ctx context.Context) {
	pause := retryPause << min(a.retries, maxDoublings)
	a.retries++
	a.await(ctx, pause+rand.N(pause), func() bool { return a.decide().verdict != lost })
	if a.decide().verdict != lost {
		return
	}
	for i, v := range a.votes {
		if v.state == refused {
			a.ask(i)
		}
	}
}

// mustWait reports whether the bell refused the request and it waits, even if the other nodes would grant it. It does
// not if the holder at the bell has had that vote for long: unless it has a majority, it may be a client that died.
func (a *attempt) mustWait() bool {
	if !a.strict || a.refusals[a.bell] == nil || a.se.isValid() {
		return false
	}
	holders := a.refusals[a.bell].Holders
	return len(holders) == 0 || holders[0].Age <= a.se.store.opts.Timeout/2
}

// holder returns what nodes report about the holder that most of them name.
func (a *attempt) holder() (most []store.Holder) {
	reports := make(map[store.ID][]store.Holder)
	for _, r := range a.refusals {
		if r != nil && len(r.Holders) > 0 {
			h := r.Holders[0]
			if reports[h.ID] = append(reports[h.ID], h); len(reports[h.ID]) > len(most) {
				most = reports[h.ID]
			}
		}
	}
	return most
}

// knowsHolder reports whether a majority names the same holder with the same token, and the bell has replied.
func (a *attempt) knowsHolder() bool {
	most := a.holder()
	if len(most) < a.se.store.majority || a.bell >= 0 && a.votes[a.bell].state == asked {
		return false
	}
	return !slices.ContainsFunc(most, func(h store.Holder) bool { return h.Token != most[0].Token })
}

// refuse ends the attempt with a refusal, which names the holder that most nodes report. It keeps
// the place in the queue of the bell, and gives all votes back.
func (a *attempt) refuse() *store.Refusal {
	s, se := a.se.store, a.se
	se.held, se.want = false, wantNothing
	r := &store.Refusal{Again: s.caps.Heartbeat / 2, Waiters: a.waiters}
	for _, node := range a.refusals {
		if node != nil {
			r.Again = min(r.Again, node.Again)
		}
	}
	if reports := a.holder(); len(reports) > 0 {
		r.Holders = []store.Holder{s.merge(reports)}
	}
	if a.bell < 0 {
		return r
	}
	se.want, se.bell = wantPlace, a.bell
	se.name.noteCrowd(s.now())
	if a.votes[a.bell].state == refused {
		se.splits = 0
		// Jitter keeps clients that were refused together from asking together.
		r.Again = max(time.Millisecond, r.Again*3/4+rand.N(r.Again/4+1))
	} else { // nothing wakes it
		se.splits++
		pause := min(mostSplitPause, leastSplitPause<<min(se.splits, maxDoublings))
		r.Again = pause/2 + rand.N(pause/2)
	}
	return r
}
