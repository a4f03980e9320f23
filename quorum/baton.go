package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// This file moves the votes of all nodes but the bell from one holder of a contended name to the
// next one, with one message: see the rule Passed.

const (
	// passTTL is the TTL of votes that can be passed on. It is how long the name is blocked if their
	// bearer dies. Each waiter that gets them has to assume that they are older by its own wait, so
	// a short TTL means that they are requested again more often.
	passTTL = 2 * time.Second

	// passTokens is how many tokens these votes come with, which is how many holders can have them.
	passTokens = 256

	// stragglerTime is how long a release waits at least for the votes of the slowest nodes, because
	// votes are passed on only if all of them have answered.
	stragglerTime = 5 * time.Millisecond

	// unfitFor is how long votes of a name are not requested to be passed on after that was not
	// possible, so that all nodes were asked in vain. If a node is slower than the others, it is longer.
	unfitFor, slowFor = 500 * time.Millisecond, 10 * time.Second
)

// A baton is the votes of all nodes but the bell for a lease, under an identity of their own.
type baton struct {
	id         store.ID
	begin      time.Duration // not later than the first request for these votes was sent
	ttl        time.Duration // that the nodes were asked for
	next, last int64         // tokens that no holder has had yet

	// Only of the lease that has the baton:
	bell    int
	token   int64         // of the bell's grant
	others  bool          // other requests wait for the name
	votes   []vote        // of the holder that requested the baton; nil if it was passed on
	brief   bool          // a node granted a shorter TTL, so that it cannot be passed on
	missing int           // how many of these votes were not answered yet
	took    time.Duration // how long it took to get enough of them
	done    chan struct{} // closed when all were answered; nil if it was passed on
	won     bool          // a lease has it; before, an attempt requests it
	state   batonState
	adopted chan struct{} // closed when the nodes have been asked to give the votes to the identity of the lease
	voted   uint16        // nodes that had a vote then, as a bit set
}

type batonState uint8

const (
	batonHeld    batonState = iota
	batonPassing            // it must not be used again, because the next holder may have it
	batonAdopted            // its votes get the identity of the lease
)

// newBatonID returns an identity for votes that are passed on. Half of it is a hash of the rest and
// the name, so that clients can tell it from the identity of a caller.
func newBatonID(name string) (id store.ID) {
	rand.Read(id[:8])
	copy(id[8:], batonSum(name, id))
	return id
}

func batonSum(name string, id store.ID) []byte {
	h := fnv.New64a()
	h.Write([]byte("holdfast baton"))
	h.Write(id[:8])
	h.Write([]byte(name))
	return h.Sum(nil)
}

// isBaton reports whether an identity is that of votes that are passed on.
func isBaton(name string, id store.ID) bool { return string(batonSum(name, id)) == string(id[8:]) }

// startBaton decides whether the votes of the other nodes are requested for a baton. They are if
// others wait for the name, all nodes are healthy, and no other node was asked before. A
// client that wants a block of tokens hands the name over between its own goroutines.
func (a *attempt) startBaton() bool {
	s, se := a.s, a.se
	if !s.passes || a.bell < 0 || a.votes[a.bell].state != granted || a.waiters == 0 || a.req.Tokens > 1 {
		return false
	}
	for _, n := range s.nodes {
		if !n.healthy() {
			return false
		}
	}
	if s.unfit.has(a.req.Name, s.now()) {
		return false
	}
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.asked != 1<<a.bell || se.held || se.tainted != 0 || se.baton != nil {
		return false
	}
	a.baton = &baton{
		id: newBatonID(a.req.Name), begin: s.now(), ttl: ttlAtNodes(min(a.want, passTTL)),
		bell: a.bell, token: a.votes[a.bell].first,
	}
	se.baton, se.under = a.baton, s.allBut(a.bell)
	return true
}

func (s *Store) allBut(bell int) uint16 { return (1<<len(s.nodes) - 1) &^ (1 << bell) }

// idAt returns the identity that a vote of a node has. The votes of a baton that is being passed on are
// no longer those of the session. If it is not passed on, the Release in progress ends them.
func (se *session) idAt(i int) store.ID {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.baton != nil && se.baton.state != batonPassing && se.under&(1<<i) != 0 {
		return se.baton.id
	}
	return se.key.id
}

// batonWon records the baton of a lease that was granted. Se.mu is held.
func (a *attempt) batonWon(d decision) {
	b := a.baton
	b.won, b.next, b.others, b.took = true, d.last+1, a.waiters > 0 && a.votes[a.bell].state == granted, a.s.now()-b.begin
	b.votes, b.done = make([]vote, len(a.votes)), make(chan struct{})
	for i, v := range a.votes {
		if i == a.bell {
			continue
		}
		if b.votes[i] = v; v.state == asked {
			b.missing++
		}
	}
	if b.missing == 0 {
		close(b.done)
	}
}

// batonVote records a vote for the baton that arrived after the lease was granted.
func (se *session) batonVote(b *baton, i int, v vote) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if b.votes == nil || b.votes[i].state != asked {
		return
	}
	b.votes[i] = v
	if b.missing--; b.missing == 0 {
		close(b.done)
	}
}

// dropBaton ends the votes that an attempt requested for a baton.
func (a *attempt) dropBaton() {
	b := a.baton
	if b == nil {
		return
	}
	a.se.mu.Lock()
	a.se.baton, a.se.under = nil, 0
	a.se.asked = 1 << a.bell
	a.se.unheard &= 1 << a.bell
	a.se.mu.Unlock()
	a.s.endBaton(a.se, b.id, a.bell)
}

// takeBaton wins the attempt with the votes that the previous holder passed on, if they are valid
// for long enough. Otherwise it ends them.
func (a *attempt) takeBaton() (answer store.Answer, ok bool) {
	s, se, b := a.s, a.se, a.passed
	a.passed = nil
	now := s.now()
	validity := s.rules.validity(b.ttl, now-b.begin)
	until := min(b.begin+validity, a.begin+min(a.want, s.rules.validity(a.ttl, now-a.begin)))
	last := min(b.last, b.next+int64(a.req.Tokens)-1)
	se.mu.Lock()
	if se.baton != nil && se.baton.id == b.id || slices.Contains(se.ended, b.id) { // the request is repeated
		se.mu.Unlock()
		return answer, false
	}
	usable := a.votes[a.bell].state == granted && b.next <= last && b.next > a.floor && !a.hasOthers() &&
		until-now >= min(a.want, s.rules.validity(ttlAtNodes(passTTL), 0))/4 && !se.held && se.baton == nil && se.tainted == 0
	if !usable {
		se.mu.Unlock()
		s.endBaton(se, b.id, a.bell)
		return answer, false
	}
	se.held, se.waiting, se.queued, se.splits = true, false, false, 0
	se.ttl, se.req, se.first, se.last, se.floor, se.until = a.want, a.req, b.next, last, max(se.floor, last), until
	se.asked, se.voted = 1<<len(s.nodes)-1, 1<<len(s.nodes)-1
	b.next = last + 1
	b.bell, b.token, b.others, b.won = a.bell, a.votes[a.bell].first, a.waiters > 0, true
	se.baton, se.under = b, s.allBut(a.bell)
	first := se.first
	se.mu.Unlock()
	a.op.finish(nil)
	s.tokens.learn(first, last, false, now)
	if a.waiters > 0 {
		s.crowds.note(a.req.Name, now, crowdedFor)
	}
	s.completeLater(se)
	return store.Answer{Token: first, Tokens: int(last - first + 1), TTL: until - a.begin, Waiters: a.waiters}, true
}

// hasOthers reports whether nodes other than the bell have given their votes to the identity of the
// request, or may have done so. With a baton, nobody would give these votes back. Se.mu is held.
func (a *attempt) hasOthers() bool {
	for i, v := range a.votes {
		if i != a.bell && (v.state == asked || v.state == granted || v.state == uncounted) {
			return true
		}
	}
	return a.se.unheard&^(1<<a.bell) != 0
}

// endBaton ends the votes of a baton that is not used, in the background. They are ended before later
// messages of the session reach the same nodes, and the session does not use them again.
func (s *Store) endBaton(se *session, id store.ID, bell int) {
	se.mu.Lock()
	se.ended = append(se.ended, id)
	se.mu.Unlock()
	o := s.newOp(se)
	for i := range s.nodes {
		if i != bell {
			o.start(i, func(ctx context.Context, n *node, r *reply) { r.err = n.Leave(ctx, se.key.name, id) })
		}
	}
	o.finish(nil)
}

// forgetBaton ends the baton of a lease that is over, before its identity is used again.
func (s *Store) forgetBaton(se *session) {
	se.mu.Lock()
	b, over := se.baton, !se.held || s.now() >= se.until
	if b == nil || !b.won || !over || b.state == batonPassing {
		se.mu.Unlock()
		return
	}
	ended := se.under | se.stray
	se.baton, se.under, se.stray = nil, 0, 0
	se.mu.Unlock()
	if ended != 0 {
		s.endBaton(se, b.id, b.bell)
	}
}

// tryPass is like pass, for an identity.
func (s *Store) tryPass(ctx context.Context, name string, id store.ID) (done bool, err error) {
	if !s.passes {
		return false, nil
	}
	if err := s.enter(ctx); err != nil {
		return true, err
	}
	defer s.life.Leave()
	se := s.find(name, id)
	if se == nil {
		return false, nil
	}
	s.keep(se)
	defer s.shut(se)
	return s.pass(ctx, se)
}

// pass releases a lease by passing its votes on to the next waiter. It reports whether that is done
// or may have been done. Otherwise the lease is as it was.
func (s *Store) pass(ctx context.Context, se *session) (done bool, err error) {
	se.mu.Lock()
	b := se.baton
	if b == nil || !b.others || b.state != batonHeld || !se.held {
		se.mu.Unlock()
		return false, nil
	}
	answered := b.done
	se.mu.Unlock()
	if answered != nil {
		timer := time.NewTimer(min(s.hedge(), 2*b.took+stragglerTime))
		defer timer.Stop()
		select {
		case <-answered:
		case <-timer.C:
			s.unfit.note(se.key.name, s.now(), slowFor)
			return false, nil
		case <-ctx.Done():
			return false, nil
		}
	}
	now := s.now()
	spent := now - b.begin
	se.mu.Lock()
	if b.votes != nil { // all nodes have answered
		// Tokens must not follow the clock of one node that is wrong.
		if d := s.rules.decideBaton(b.votes, b.bell); d.verdict == won && d.first-b.next < nearby {
			b.next, b.last = max(b.next, d.first), d.last
		} else {
			b.last = b.next - 1
		}
		if b.votes = nil; b.next > b.last {
			s.unfit.note(se.key.name, now, unfitFor)
		}
	}
	if se.baton != b || b.state != batonHeld || !se.held || se.tainted != 0 || b.brief || b.next > b.last ||
		spent > s.rules.validity(b.ttl, spent)/2 || now >= se.until {
		se.mu.Unlock()
		return false, nil
	}
	for i := range s.nodes {
		if !s.nodes[i].healthy() || i != b.bell && se.lanes[i].busy {
			se.mu.Unlock()
			return false, nil
		}
	}
	b.state = batonPassing
	se.mu.Unlock()
	o := s.newOp(se)
	o.ending, o.final = true, true
	passed := false
	o.start(b.bell, func(ctx context.Context, n *node, r *reply) {
		// Later holders measure the validity from here.
		spent := s.now() - b.begin
		r.passed, r.err = n.passer.Pass(ctx, se.key.name, se.key.id, b.token, b.last, b.note(s.list, spent))
	})
	defer func() {
		if done {
			se.end(len(s.nodes))
			se.mu.Lock()
			se.baton = nil
			se.mu.Unlock()
		}
	}()
	r, ok := o.next(ctx, 0, 1)
	if !ok {
		// If the name was not passed on, all votes are given back.
		o.finish(func(r *reply) {
			if r.err == nil && !r.passed {
				s.endBaton(se, b.id, b.bell)
				s.undo(se, b.bell)
			}
		})
		if ctx.Err() != nil {
			return true, ctx.Err()
		}
		s.nodes[b.bell].fail(errTimeout)
		r.err = errTimeout
	} else {
		o.finish(nil)
		passed = r.passed
	}
	switch {
	case unsent(r.err):
	case errors.Is(r.err, store.ErrNotHeld):
		return true, store.ErrNotHeld
	case r.err != nil:
		errs := make([]error, len(s.nodes))
		for i := range errs {
			errs[i] = errPassing
		}
		errs[b.bell] = r.err
		return true, s.failures(errs)
	case passed:
		s.stats.passed.Add(1)
		return true, nil
	}
	se.mu.Lock()
	b.state, b.others = batonHeld, false
	se.mu.Unlock()
	return false, nil
}

var errPassing = errors.New("the next holder may have its vote")
