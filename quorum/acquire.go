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
	// While the votes are split, a candidate repeats its request to the nodes that refused it. The
	// other requests give their votes back within a round trip. The pauses are random and double up
	// to a maximum of 32 ms.
	retryPause   = 250 * time.Microsecond
	maxDoublings = 7

	// A request that gave votes back although it found no holder asks again after a random pause,
	// which doubles with each such attempt.
	leastSplitPause = time.Millisecond
	mostSplitPause  = 100 * time.Millisecond
)

var (
	errMode = fmt.Errorf("%w: a quorum has exclusive locks only: permits on a majority of the nodes do not add up to a limit; use a single store, or one with consensus such as etcd or ZooKeeper", store.ErrUnsupported)
	errLeft = errors.New("quorum store: the request was cancelled by Leave or Release")
)

// An attempt is one call of Acquire. The mutex of its session protects what replies change.
type attempt struct {
	se    *session
	req   store.Request // as the nodes are asked
	floor int64         // that nodes may be asked for, to choose equal tokens
	ttl   time.Duration // of the lease
	begin time.Duration

	votes    []vote
	errs     []error
	refusals []*store.Refusal
	shortest time.Duration // shortest TTL that a node granted
	block    int           // largest block that a node granted, which may be smaller or larger than the one requested
	waiters  int
	over     bool
	aborted  error
	expired  bool          // the time limit is over
	bell     int           // the node whose queue the request joins; -1 if it does not wait
	alone    bool          // only the bell has been asked so far
	strict   bool          // the request waits if the bell refuses it, even if other nodes grant it
	eager    bool          // every reply is awaited, not only one that decides
	ready    chan struct{} // gets a value when there is something to do
	deadline <-chan time.Time
	retries  int
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
	se := s.open(req.Name, req.ID, false)
	defer s.shut(se)
	a := &attempt{
		se: se, req: req, ttl: req.TTL, begin: s.now(), bell: -1, shortest: store.MaxTime, ready: make(chan struct{}, 1),
		votes: make([]vote, len(s.nodes)), errs: make([]error, len(s.nodes)), refusals: make([]*store.Refusal, len(s.nodes)),
	}
	a.req.TTL, a.req.Tokens = ttlAtNodes(req.TTL), max(1, req.Tokens)
	if err := a.start(ctx); err != nil {
		return store.Answer{}, err
	}
	return a.run(ctx)
}

// start asks the nodes, after an earlier call of the same identity has ended.
func (a *attempt) start(ctx context.Context) error {
	se := a.se
	se.mu.Lock()
	defer se.mu.Unlock()
	for se.attempt != nil {
		if se.idle == nil {
			se.idle = make(chan struct{})
		}
		idle := se.idle
		se.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
		}
		se.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if a.req.Queue {
		waits := se.want == wantPlace
		a.bell = se.chooseBell()
		a.strict = !waits || se.woken
		a.alone = waits && se.woken || !waits && se.name.isCrowded(a.begin)
	}
	a.floor = max(a.req.Floor, se.name.last.Load())
	se.attempt, se.want, se.woken = a, wantVotes, false
	if a.alone {
		a.ask(a.bell)
	} else {
		a.askOthers()
	}
	return nil
}

// askOthers asks all nodes that were not asked yet.
func (a *attempt) askOthers() {
	for i := range a.votes {
		if !a.alone || i != a.bell {
			a.ask(i)
		}
	}
	a.alone = false
}

// ask asks a node.
func (a *attempt) ask(i int) {
	a.votes[i], a.refusals[i] = vote{}, nil
	if t := &a.se.seats[i]; a.se.isBlocked(i) && a.se.store.nodes[i].isDown() { // the message before this one is not answered
		a.votes[i].state, a.errs[i] = failed, errSkipped
		a.signal()
	} else {
		t.ask = a
		a.se.drive(i)
	}
}

// deliver notes the reply of a node to an Acquire.
func (a *attempt) deliver(i int, r reply) {
	v := &a.votes[i]
	switch {
	case r.err != nil:
		v.state, a.errs[i] = failed, r.err
	case !r.answer.Granted():
		v.state, a.refusals[i] = refused, r.answer.Refusal
		a.waiters = max(a.waiters, r.answer.Refusal.Waiters)
	default:
		*v = vote{granted, r.answer.Token, r.answer.Token + int64(r.answer.Tokens) - 1}
		a.waiters = max(a.waiters, r.answer.Waiters)
		if r.exclude != nil {
			v.state, a.errs[i] = uncounted, r.exclude
			break
		}
		a.shortest = min(a.shortest, r.answer.TTL)
		a.block = max(a.block, r.answer.Tokens)
	}
	a.signal()
}

// signal wakes the caller if there is something to do.
func (a *attempt) signal() {
	if !a.over && (a.eager || a.alone || a.aborted != nil || a.decide().verdict != open) {
		select {
		case a.ready <- struct{}{}:
		default:
		}
	}
}

// abort ends the attempt because its identity was released.
func (a *attempt) abort(err error) {
	a.aborted = err
	a.signal()
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

// run waits for replies until they decide.
func (a *attempt) run(ctx context.Context) (answer store.Answer, err error) {
	s, se := a.se.store, a.se
	deadline := time.NewTimer(s.opts.Timeout)
	defer deadline.Stop()
	a.deadline = deadline.C
	se.mu.Lock()
	defer se.mu.Unlock()
	defer a.finish()
	for {
		d := a.decide()
		switch {
		case a.aborted != nil:
			return answer, a.aborted
		case ctx.Err() != nil:
			return answer, ctx.Err()
		case a.alone && a.votes[a.bell].state == asked:
			if !a.await(ctx, time.After(s.opts.Timeout/10)) && a.alone {
				a.askOthers() // the bell may hang
			}
		case a.alone && a.votes[a.bell].state != refused:
			a.askOthers()
		case (a.strict || a.alone) && a.votes[a.bell].state == refused && !se.isValid():
			if a.mustWait() {
				return store.Answer{Refusal: a.refuse()}, nil
			}
			if a.strict = false; a.alone {
				a.askOthers()
			}
		case d.verdict == won:
			return a.win(d)
		case d.verdict == broken, d.verdict == lost && se.isValid():
			if a.count(refused)+a.count(uncounted) > 0 && !se.isValid() {
				se.want, se.bell = wantPlace, max(0, a.bell) // others want the name, so its votes are given back
			}
			return answer, a.failure()
		case d.verdict == lost && !a.isCandidate() && a.disagree() && !a.eager && a.count(asked) > 0:
			a.linger(ctx, lost, max(s.now()-a.begin, retryPause)) // all nodes together know the token of the holder
		case d.verdict == lost && !a.isCandidate():
			return store.Answer{Refusal: a.refuse()}, nil
		case d.verdict == lost:
			pause := retryPause << min(a.retries, maxDoublings)
			a.retries++
			a.linger(ctx, lost, pause+rand.N(pause))
			a.askAgain()
		case d.verdict == conflict && !a.eager && a.count(asked) > 0:
			// All nodes together may agree, or do without one whose clock is far ahead. It takes a
			// round trip to make a majority agree.
			a.linger(ctx, conflict, max(s.now()-a.begin, retryPause))
		case d.verdict == conflict:
			if d = a.raise(ctx, d); d.verdict == won && a.aborted == nil {
				return a.win(d)
			}
			return answer, cmp.Or(a.aborted, ctx.Err(), a.failure())
		default:
			a.await(ctx, nil)
		}
	}
}

// await waits until there is something to do, a limit is over, or ctx ends. It unlocks the mutex meanwhile.
func (a *attempt) await(ctx context.Context, limit <-chan time.Time) (more bool) {
	a.se.mu.Unlock()
	defer a.se.mu.Lock()
	select {
	case <-a.ready:
		return true
	case <-limit:
	case <-ctx.Done():
	case <-a.deadline:
		a.se.mu.Lock()
		a.expire()
		a.se.mu.Unlock()
	}
	return false
}

// linger waits for further replies as long as the verdict stays the same, and for no longer than d.
func (a *attempt) linger(ctx context.Context, v verdict, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	a.eager = true
	for a.await(ctx, timer.C) && a.aborted == nil && a.decide().verdict == v {
	}
}

// expire records that the time limit of the call is over.
func (a *attempt) expire() {
	s := a.se.store
	a.expired = true
	for i := range a.votes {
		if a.votes[i].state != asked {
			continue
		}
		a.votes[i].state, a.errs[i] = failed, errTimeout
		if n := s.nodes[i]; s.now()-time.Duration(n.lastReply.Load()) >= s.opts.Timeout/2 {
			n.fail(errTimeout)
		}
	}
}

// finish ends the attempt. Unless it was granted, requests that were not sent yet are not sent any
// more. Votes that the identity does not want are given back, now or when they arrive.
func (a *attempt) finish() {
	se := a.se
	a.over, se.attempt = true, nil
	if se.idle != nil {
		close(se.idle)
		se.idle = nil
	}
	for i := range se.seats {
		if !se.isValid() && se.seats[i].ask == a {
			se.seats[i].ask = nil
		}
		se.settle(i)
	}
	if !se.isValid() {
		se.until = se.store.now() + max(a.ttl, se.store.caps.Heartbeat)
	}
}

// win ends the attempt with a grant. Votes that arrive later are kept.
func (a *attempt) win(d decision) (store.Answer, error) {
	se, now := a.se, a.se.store.now()
	until := min(a.begin+a.ttl, validUntil(a.begin, now, a.shortest))
	if now >= until {
		return store.Answer{}, fmt.Errorf("quorum store: the replies took %v of a TTL of %v", now-a.begin, until-a.begin)
	}
	if !se.isValid() {
		se.ttl = 0
	}
	if a.waiters > 0 {
		se.name.noteCrowd(now)
	}
	se.held, se.splits, se.ttl, se.req = true, 0, max(se.ttl, a.ttl), a.req
	se.name.last.Store(d.last)
	se.first, se.last, se.floor, se.until = d.first, d.last, max(se.floor, d.last), until
	return store.Answer{Token: d.first, Tokens: int(d.last - d.first + 1), TTL: until - a.begin, Waiters: a.waiters}, nil
}

// failure returns why too few nodes answered. Votes stay: the caller repeats the request, or leaves.
func (a *attempt) failure() error {
	invalid := 0
	for i, err := range a.errs {
		if errors.Is(err, store.ErrInvalid) {
			if invalid++; invalid >= a.se.store.majority {
				return err
			}
		}
		if a.votes[i].state == refused {
			a.errs[i] = errRefused
		}
	}
	return a.se.store.failures(a.errs, a.count(granted))
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

// raise makes a majority of the nodes record the token. It unlocks the mutex meanwhile.
func (a *attempt) raise(ctx context.Context, d decision) decision {
	votes := append([]vote(nil), a.votes...)
	renewal := store.Renewal{Name: a.req.Name, ID: a.req.ID, TTL: a.req.TTL, Mode: store.Exclusive}
	a.se.mu.Unlock()
	d = a.se.store.raise(ctx, a.begin, renewal, votes, d)
	a.se.mu.Lock()
	for i, v := range votes {
		if v.state == granted {
			a.se.seats[i].recorded = max(a.se.seats[i].recorded, v.recorded)
		}
	}
	return d
}

// isCandidate reports whether the request goes on although the votes are split. One node decides:
// the first one that has answered, in the order of the name. So one of several requests goes on and
// the others give their votes back.
func (a *attempt) isCandidate() bool {
	s := a.se.store
	if _, seen := a.holder(); seen >= s.majority || a.expired || s.now()-a.begin > s.opts.Timeout/4 {
		return false
	}
	for k := range a.votes {
		switch a.votes[s.order(a.req.Name, k)].state {
		case granted, uncounted:
			return true
		case refused:
			return false
		}
	}
	return false
}

// mustWait reports whether a request that the bell refused waits, even if the other nodes would grant
// it. It does not if the holder at the bell has had that vote for long: unless it has a majority, it may
// be a client that died.
func (a *attempt) mustWait() bool {
	s, r := a.se.store, a.refusals[a.bell]
	return r == nil || len(r.Holders) == 0 || r.Holders[0].Age <= s.opts.Timeout/2
}

// askAgain repeats the request at the nodes that refused it.
func (a *attempt) askAgain() {
	if a.decide().verdict != lost || a.expired {
		return
	}
	for i, v := range a.votes {
		if v.state == refused {
			a.ask(i)
		}
	}
}

// holder returns the holder that most nodes report, and the number of those nodes.
func (a *attempt) holder() (h store.Holder, seen int) {
	for i, r := range a.refusals {
		if r == nil || len(r.Holders) == 0 {
			continue
		}
		same := 0
		for _, other := range a.refusals[i:] {
			if other != nil && len(other.Holders) > 0 && other.Holders[0].ID == r.Holders[0].ID {
				same++
			}
		}
		if same > seen {
			h, seen = r.Holders[0], same
		}
	}
	return h, seen
}

// disagree reports whether the nodes report different tokens for the holder.
func (a *attempt) disagree() bool {
	h, seen := a.holder()
	for _, r := range a.refusals {
		if seen > 0 && r != nil && len(r.Holders) > 0 && r.Holders[0].ID == h.ID && r.Holders[0].Token != h.Token {
			return true
		}
	}
	return false
}

// refuse ends the attempt with a refusal, which names the holder that most nodes report. It keeps
// the place in the queue of the bell, and gives all votes back.
func (a *attempt) refuse() *store.Refusal {
	s, se := a.se.store, a.se
	se.held, se.want = false, wantNothing
	r := &store.Refusal{Again: s.caps.Heartbeat / 2, Waiters: a.waiters}
	var reports []store.Holder
	h, seen := a.holder()
	for _, node := range a.refusals {
		if node == nil {
			continue
		}
		r.Again = min(r.Again, node.Again)
		if seen > 0 && len(node.Holders) > 0 && node.Holders[0].ID == h.ID {
			reports = append(reports, node.Holders[0])
		}
	}
	if seen > 0 {
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
	se.retryAt = s.now() + r.Again
	return r
}
