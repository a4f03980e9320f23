package localqueue

import (
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// A Turn is the right of one call to talk to the store about a name. Granted or End ends it.
type Turn struct {
	q *Queue
	n *name
}

// IsZero reports whether there is no turn.
func (t Turn) IsZero() bool { return t.n == nil }

// Waiting reports whether other calls wait for the turn.
func (t Turn) Waiting() bool { return t.n.waiting.Load() > 0 }

// Joined returns how many calls have begun to wait for the turn so far.
func (t Turn) Joined() int32 { return t.n.joined.Load() }

// Asks notes that the call with the turn is about to send a request.
func (t Turn) Asks() { t.n.outdated.Store(false) }

// HandsOver reports whether a grant for a call could be handed over to the first of the waiting calls.
func (t Turn) HandsOver(call *Call) bool {
	if call.Own || call.Request.Mode != store.Exclusive || !t.Waiting() {
		return false
	}
	t.n.shard.mu.Lock()
	defer t.n.shard.mu.Unlock()
	w := t.n.head
	return w != nil && t.q.takes(&w.call, call.Request.TTL, call.Request.Meta)
}

// Granted ends the turn with a grant and the store's answer to a request that was sent at that
// time. An exclusive grant stays with the name until it is released, lost or downgraded. After any
// other grant the next call gets the turn.
func (t Turn) Granted(g *renewal.Grant, a *store.Answer, sent time.Duration) {
	n := t.n
	n.shard.mu.Lock()
	defer n.shard.mu.Unlock()
	n.busy, n.answered = false, Answer{}
	if g.Mode != store.Exclusive {
		n.wakeNext()
		return
	}
	n.grant = g
	n.handover = handover{
		token: a.Token, since: sent,
		next: a.Token + 1, tokens: a.Tokens - 1,
		slice: sent, othersWait: a.Waiters > 0, short: a.TTL <= g.TTL/2,
	}
	n.answerWaiters(&t.q.config)
}

// Answered records the answer of the store, and ends the waiting calls for which it is enough.
func (t Turn) Answered(a Answer) {
	n := t.n
	n.shard.mu.Lock()
	defer n.shard.mu.Unlock()
	if n.outdated.Load() {
		a = a.outdated()
	}
	n.answered = a
	n.answerWaiters(&t.q.config)
}

// ForgetRefusal forgets a refusal that may be due to the place that the call with the turn gives up.
func (t Turn) ForgetRefusal() {
	t.n.shard.mu.Lock()
	defer t.n.shard.mu.Unlock()
	if t.n.answered.Refusal != nil {
		t.n.answered = Answer{}
	}
}

// Refused ends the waiting single attempts with the same shape as the request just refused.
func (t Turn) Refused(req *store.Request, a Answer) {
	n := t.n
	n.shard.mu.Lock()
	defer n.shard.mu.Unlock()
	n.each(func(w *Waiter) {
		if !n.outdated.Load() && w.call.Try && sameShape(&w.call.Request, req) {
			answer := a // does not move a to the heap if no call waits
			n.signal(w, Outcome{Answer: &answer})
		}
	})
}

// sameShape reports whether the store must grant or refuse both requests.
func sameShape(a, b *store.Request) bool {
	return a.Mode == b.Mode && a.Weight == b.Weight && a.Limit == b.Limit
}

// Obstacle returns why a call must wait, or nil if that is not known.
func (t Turn) Obstacle() *Answer {
	t.n.shard.mu.Lock()
	defer t.n.shard.mu.Unlock()
	return t.n.obstacle(&t.q.config)
}

// OfferTicket offers the place of a request in the store's queue to the next call, if that makes
// the same request. It reports whether it did. So a client keeps its place when a call gives up.
func (t Turn) OfferTicket(req *store.Request) bool {
	n := t.n
	n.shard.mu.Lock()
	defer n.shard.mu.Unlock()
	w := n.head
	if w == nil || w.call.Try {
		return false
	}
	next := w.call.Request
	next.Queue = req.Queue
	if !interchangeable(req, &next) {
		return false
	}
	ticket := *req
	n.ticket = &ticket
	return true
}

// interchangeable reports whether one request can continue under the identity of another. The
// store may grant the other one at any moment, with its TTL and Meta, so both must be equal.
func interchangeable(a, b *store.Request) bool {
	return a.Queue && b.Queue && sameShape(a, b) && a.TTL == b.TTL && a.Meta == b.Meta
}

// TakeTicket returns the ticket that another call left, or nil if there is none. If usable is
// false, req is a different request, and the place of the ticket must be cancelled in the store.
func (t Turn) TakeTicket(req *store.Request) (ticket *store.Request, usable bool) {
	n := t.n
	n.shard.mu.Lock()
	defer n.shard.mu.Unlock()
	ticket, n.ticket = n.ticket, nil
	return ticket, ticket != nil && interchangeable(req, ticket)
}

// End gives the turn to the next call. If it returns a ticket, no call can use it and the turn goes
// on: the caller must cancel the ticket's place in the store and then call End again.
func (t Turn) End() (unused *store.Request) {
	n := t.n
	n.shard.mu.Lock()
	defer n.shard.mu.Unlock()
	if n.ticket != nil && n.head == nil {
		unused, n.ticket, n.answered = n.ticket, nil, Answer{}
		return unused
	}
	n.busy = false
	n.wakeNext()
	return nil
}
