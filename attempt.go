package holdfast

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/store"
)

// An attempt is a call that has the turn: its requests to the store under one identity.
type attempt struct {
	call     // a copy, because a pointer to the call would move it to the heap
	c        *Client
	turn     localqueue.Turn // zero once it has ended
	recorded bool            // the store may have recorded something for the request
	extended bool            // the last reply was a grant, and the call asked again to get its whole TTL

	sent     time.Duration // when the last call was sent
	joined   int32         // how many calls had joined the local queue by then
	held     *HeldError    // the last refusal
	heldAt   time.Duration
	counted  int           // how often the caller's strategy was asked
	failures int           // failed calls since the last reply
	outage   bool          // every call since failing has failed
	failing  time.Duration // send time of the first call that failed since the last reply
	reason   error         // the last failure since the last reply, not counting calls without a reply
	unsure   bool          // an Acquire failed, and may be executed late
	spins    int           // consecutive refusals without a pause between them
	waitEnd  time.Duration // end of the wait that the strategy chose after a refusal
	resumeAt time.Duration // the same after a failure
}

// acquireFromStore asks the store until it grants the name, the call gives up, or ctx ends. Unless
// the name was granted, nothing is left in the store. The call has the turn now.
func (c *Client) acquireFromStore(ctx context.Context, cl *call, turn localqueue.Turn, now time.Duration) (*hold, error) {
	a := attempt{call: *cl, c: c, turn: turn}
	defer func() { // even if a strategy panics
		cl.reported = a.reported
		a.end()
	}()
	a.start(ctx)
	for ; ; now = c.now() {
		var h *hold
		answer, err := a.ask(ctx, now)
		switch {
		case err != nil:
			a.unsure = true
			err = a.failed(ctx, err)
		case answer.Granted():
			h, err = a.granted(ctx, &answer)
		default:
			err = a.refused(ctx, answer.Refusal)
		}
		if h != nil || err != nil {
			return h, err
		}
	}
}

// start chooses the identity of the request.
func (a *attempt) start(ctx context.Context) {
	if a.reported { // only a call that waited can have missed the start of an outage
		if last := a.turn.Obstacle(); last != nil && last.Failure != nil {
			a.outage, a.failing = true, max(last.Since, a.Begin)
		}
	}
	a.Request.Queue = !a.Try && a.c.caps.Features.Wakes()
	a.Request.ID = a.identify(ctx)
	a.recorded = true
}

// identify returns a new identity, or that of another call that left its place in the queue.
func (a *attempt) identify(ctx context.Context) store.ID {
	if a.reported { // only a call that waited can find a ticket; other calls lock no mutex
		ticket, usable := a.turn.TakeTicket(&a.Request)
		if usable {
			return ticket.ID
		}
		if ticket != nil {
			cancelled := make(chan struct{})
			a.c.cancelRequest(ticket, func() { close(cancelled) })
			select {
			case <-cancelled:
			case <-ctx.Done():
			}
		}
	}
	return a.c.ids.next()
}

func (a *attempt) ask(ctx context.Context, now time.Duration) (store.Answer, error) {
	if a.turn.HandsOver(&a.Call) {
		a.Request.Tokens = max(1, a.c.set.handoverLimit)
	}
	limit := a.Request.TTL
	if a.Try {
		limit = min(limit, a.Begin+bounded.CallTimeout-now)
	}
	if a.outage && a.retry == nil {
		limit = min(limit, a.failing+patience-now)
	}
	a.sent, a.joined = now, a.turn.Joined()
	a.turn.Asks()
	return a.c.store.Acquire(ctx, limit, &a.Request)
}

// granted ends the turn with a grant. If it returns neither a hold nor an error, the grant does not
// last long enough, and another request under the same identity restarts its TTL.
func (a *attempt) granted(ctx context.Context, answer *store.Answer) (*hold, error) {
	c := a.c
	if a.noRenew && answer.TTL < a.Request.TTL && !a.extended {
		// A store may grant a waiter a shorter TTL, because leases are renewed. This one is not.
		a.extended = true
		return nil, nil
	}
	h := c.newGrant(&a.call, a.sent, answer)
	if !c.caps.Instant && c.now() >= h.g.Deadline() {
		return nil, a.failed(ctx, fmt.Errorf("the reply took %s, and the lease lasts only %s from the call", short(c.now()-a.sent), short(h.g.Deadline()-a.sent)))
	}
	a.turn.Granted(h.g, answer, a.sent)
	a.turn = localqueue.Turn{}
	if !c.renewals.Add(h.g) { // Close gave up waiting for this reply
		h.finish(ErrClosed)
		return nil, a.fail(ErrClosed)
	}
	return h, nil
}

// refused tells the other calls about a refusal, and waits. An error ends the call.
func (a *attempt) refused(ctx context.Context, r *store.Refusal) error {
	a.countRefusal(r)
	first := a.Request.Queue && a.Request.Mode == store.Exclusive && a.c.caps.Features.Has(store.FeatureQueue)
	answer := localqueue.Answer{At: a.heldAt, Refusal: r, Lasting: a.Request.Queue, First: first}
	if a.Try {
		a.turn.Refused(&a.Request, answer)
		a.recorded = false // a single attempt is not queued
	} else {
		a.turn.Answered(answer)
	}
	if a.Once && answer.Done(answer.At) {
		return a.fail(a.held.done())
	}
	if a.Try {
		return a.fail(a.held)
	}
	a.c.reportWaiting(ctx, &a.call)
	err := a.waitAfterRefusal(ctx, r)
	if err == nil && a.ended(ctx) {
		err = errEnded // nothing was sent since, so the next call can have the place
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errGaveUp):
		return a.fail(a.held, err)
	case errors.Is(err, errEnded):
		// A failed Acquire may be executed even after a later refusal, and turn the place in the queue into
		// a grant that nobody knows. It would be older than the call that would take it over.
		a.recorded = a.unsure || a.c.life.Closing.Err() != nil || !a.turn.OfferTicket(&a.Request)
		return a.waitEnded(ctx, nil)
	}
	return a.failed(ctx, err)
}

// failed handles a failure of the store: it waits, or returns the error that ends the call.
func (a *attempt) failed(ctx context.Context, err error) error {
	if a.ended(ctx) {
		return a.waitEnded(ctx, err)
	}
	if permanent(err) {
		return a.fail(err)
	}
	err = a.withReason(err)
	failure := unavailable("", err)
	wait, calls, again := a.countFailure(failure)
	a.turn.Answered(localqueue.Answer{At: a.c.now(), Failure: failure, Since: a.failing})
	if a.c.observed() {
		a.c.emit(Event{Kind: EventError, Name: a.name, Mode: a.Request.Mode, Attempt: a.failures, Err: failure})
	}
	if !again {
		if calls > 1 {
			failure = unavailable(fmt.Sprintf("%d attempts", calls), err)
		}
		return a.fail(failure)
	}
	if a.pause(ctx, wait) != nil {
		return a.waitEnded(ctx, err)
	}
	return nil
}

// waitEnded returns the error of a call that stopped because its context ended or the client
// was closed. Failure is the last error of the store, if any.
func (a *attempt) waitEnded(ctx context.Context, failure error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		cause = ErrClosed
	}
	switch {
	case a.held != nil:
		return a.fail(a.held.aged(a.c.now()-a.heldAt), cause)
	case failure != nil && !errors.Is(failure, ctx.Err()):
		return a.fail(unavailable("", failure), cause)
	}
	// The store was not asked yet, so use the last answer to another call of this client.
	if known := a.turn.Obstacle(); known != nil {
		return a.fail(a.c.waitError(&a.call, known), cause)
	}
	return a.fail(cause)
}

func (a *attempt) fail(causes ...error) error { return fail(a.op, a.name, causes...) }

// end ends the turn, unless a grant has ended it.
func (a *attempt) end() {
	c, turn := a.c, a.turn
	switch {
	case turn.IsZero():
	case a.recorded:
		// The turn ends only when the store knows that the call gave up, so that the next
		// call of this client is not refused because of it.
		turn.ForgetRefusal()
		c.cancelRequest(&a.Request, func() { c.endTurn(turn) })
	default:
		c.endTurn(turn)
	}
}

// idSource makes identities from the client's random part and a number. That needs no system call
// and no allocation, unlike new random bits for every grant.
type idSource struct {
	prefix store.ID
	n      atomic.Uint64
}

func (s *idSource) next() store.ID {
	id := s.prefix
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], s.n.Add(1))
	copy(id[10:], n[2:]) // 80 random bits and 48 of the number
	return id
}
