package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/store"
)

// acquire takes the lock for a call that was checked. It waits in the local queue. Then it either
// gets a grant that is handed over, or asks the store.
func (c *Client) acquire(ctx context.Context, cl *call, begin time.Duration) (h *hold, handed bool, err error) {
	now := begin
	for {
		out, w := c.queue.Enter(&cl.Call)
		if w != nil {
			c.reportWaiting(ctx, cl)
			if cause := c.waitForTurn(ctx, cl, w); cause != nil {
				return nil, false, c.cancelWait(ctx, cl, w, cause)
			}
			out = c.queue.Collect(w)
			now = c.now()
		}
		switch {
		case out.Answer != nil:
			return nil, false, fail(cl.op, cl.name, c.errorOf(cl, out.Answer))
		case out.Grant == nil:
			h, err = c.acquireFromStore(ctx, cl, out.Turn, begin, now)
			return h, false, err
		}
		h = new(hold)
		h.init(c, cl, out.Grant, out.Token, out.Since)
		if c.renewals.HandOver(out.Grant, h) {
			return h, true, nil
		}
		// The grant was lost after the hand-over, so another one is needed.
	}
}

// waitForTurn waits in the local queue. It returns nil if the call was served, and otherwise the
// reason why the wait ended.
func (c *Client) waitForTurn(ctx context.Context, cl *call, w *localqueue.Waiter) (cause error) {
	if cl.Try { // it does not wait for a holder
		limited, cancel := context.WithTimeoutCause(ctx, bounded.CallTimeout, unavailable("", bounded.ErrNoReply))
		defer cancel()
		ctx = limited
	}
	select {
	case <-w.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.life.Closing.Done():
		return ErrClosed
	}
}

// cancelWait removes a call whose wait has ended from the local queue. If the call was served
// at the same moment, cancelWait releases the grant or ends the turn that it got.
func (c *Client) cancelWait(ctx context.Context, cl *call, w *localqueue.Waiter, cause error) error {
	out, signalled, obstacle := c.queue.Cancel(w)
	if signalled {
		switch {
		case out.Grant != nil:
			obstacle = nil
			c.releaseGrant(detach(ctx), out.Grant, store.Keep{})
		case out.Answer == nil:
			c.endTurn(out.Turn)
		}
	}
	if obstacle != nil {
		return fail(cl.op, cl.name, c.held(cl, obstacle), cause)
	}
	return fail(cl.op, cl.name, cause)
}

// endTurn gives the turn to the next call of this client. A place in the store's queue that
// no call can use is cancelled first.
func (c *Client) endTurn(t localqueue.Turn) {
	if unused := t.End(); unused != nil {
		c.cancelRequest(unused, func() { c.endTurn(t) })
	}
}

// acquireFromStore asks the store for a name, as the only call of this client, until the
// store grants it, the call gives up, or ctx ends. Unless the name was granted, nothing is
// left in the store. The call was made at begin and has the turn now.
func (c *Client) acquireFromStore(ctx context.Context, cl *call, turn localqueue.Turn, begin, now time.Duration) (*hold, error) {
	a := attempt{b: &c.backend, req: cl.Request, begin: begin, try: cl.Try, retry: cl.retry, retrySet: cl.retrySet}
	if cl.reported { // only a call that waited can have missed the start of an outage
		since, failure := turn.Outage()
		if failure != nil && !a.inOutage(max(since, begin), now) {
			c.endTurn(turn)
			return nil, fail(cl.op, cl.name, failure)
		}
	}
	a.req.Queue = !cl.Try && c.caps.Features.Wakes()
	a.req.ID = c.identify(ctx, cl, turn, &a.req)
	recorded := true // the store may have recorded something for this request
	ended := false
	defer func() { // even if a strategy panics
		switch {
		case ended:
		case recorded:
			// The turn ends only when the store knows that the call gave up, so that the next
			// call of this client is not refused because of it.
			turn.ForgetRefusal()
			c.cancelRequest(&a.req, func() { c.endTurn(turn) })
		default:
			c.endTurn(turn)
		}
	}()
	for extended := false; ; now = c.now() {
		if turn.HandsOver(&cl.Call) {
			a.req.Tokens = max(1, c.set.handoverLimit)
		}
		joined := turn.Joined()
		answer, err := a.ask(ctx, now)
		switch {
		case err != nil:
		case !answer.Granted():
			a.refused(cl.name, answer.Refusal)
			if done, err := c.shareRefusal(cl, turn, &a); done {
				recorded = !cl.Try // a single attempt is not queued
				return nil, err
			}
			c.reportWaiting(ctx, cl)
			if err = a.waitForTurn(ctx, answer.Refusal, turn, joined); err == nil {
				continue
			}
			if gaveUp := (*gaveUpError)(nil); errors.As(err, &gaveUp) {
				return nil, fail(cl.op, cl.name, a.held, gaveUp)
			}
			if errors.Is(err, errEnded) {
				// After a failure, the place in the queue may have become a grant whose reply was
				// lost. That grant would be older than the call that would take it over.
				recorded = a.unsure || c.life.Closing.Err() != nil || !turn.LeaveTicket(&a.req)
				return nil, c.waitEnded(ctx, cl, turn, &a, nil)
			}
		case cl.noRenew && !extended && answer.TTL < a.req.TTL:
			// A store may grant a waiter a shorter TTL, because leases are renewed. This one is
			// not. Another request under the same identity restarts the TTL.
			extended = true
			continue
		default:
			if cl.noRenew { // for other leases the first renewal shows what the store grants
				c.warnShortTTL(a.req.TTL, answer.TTL)
			}
			h := c.newGrant(cl, a.req.ID, now, &answer)
			if c.caps.Instant || c.now() < h.g.Deadline() {
				ended = true
				turn.Granted(h.g, &answer, now)
				return c.granted(cl, h)
			}
			// Another request under the same identity restarts the TTL.
			err = fmt.Errorf("the reply took %s, and the lease lasts only %s from the call", short(c.now()-now), short(h.g.Deadline()-now))
		}
		if err := c.retryLater(ctx, cl, turn, &a, err); err != nil {
			return nil, err
		}
	}
}

// granted schedules the renewals of a new grant.
func (c *Client) granted(cl *call, h *hold) (*hold, error) {
	if !c.renewals.Add(h.g) { // Close gave up waiting for this reply
		h.finish(ErrClosed)
		return nil, fail(cl.op, cl.name, ErrClosed)
	}
	return h, nil
}

// identify returns the identity of a request: a new one, or the identity of another call of this
// client that gave up and left its place in the store's queue.
func (c *Client) identify(ctx context.Context, cl *call, turn localqueue.Turn, req *store.Request) store.ID {
	if cl.reported { // only a call that waited can find a ticket; other calls lock no mutex
		ticket, usable := turn.TakeTicket(req)
		if usable {
			return ticket.ID
		}
		if ticket != nil {
			cancelled := make(chan struct{})
			c.cancelRequest(ticket, func() { close(cancelled) })
			select {
			case <-cancelled:
			case <-ctx.Done():
			}
		}
	}
	return c.ids.next()
}

// shareRefusal tells the other calls of this client about a refusal. It reports whether the
// refusal ends this call, and with which error.
func (c *Client) shareRefusal(cl *call, turn localqueue.Turn, a *attempt) (done bool, err error) {
	answer := localqueue.Answer{At: a.heldAt, Refusal: a.refusal, Lasting: a.req.Queue}
	if cl.Try {
		turn.Refused(&cl.Request, answer)
	} else {
		turn.Answered(answer)
	}
	if cl.Once && answer.Done(answer.At) {
		return true, fail(cl.op, cl.name, a.held.done())
	}
	if cl.Try {
		return true, fail(cl.op, cl.name, a.held)
	}
	return false, nil
}

// retryLater handles a failure of the store: it waits before the next call, or returns the
// error that ends this one.
func (c *Client) retryLater(ctx context.Context, cl *call, turn localqueue.Turn, a *attempt, err error) error {
	if a.ended(ctx) {
		return c.waitEnded(ctx, cl, turn, a, err)
	}
	if permanent(err) {
		return fail(cl.op, cl.name, err)
	}
	err = a.withReason(err)
	failure := unavailable("", err)
	wait, calls, again := a.failed(failure)
	turn.Answered(localqueue.Answer{At: c.now(), Failure: failure, Since: a.failing})
	if c.observed() {
		c.emit(Event{Kind: EventError, Name: cl.name, Mode: cl.Request.Mode, Attempt: a.failures, Err: failure})
	}
	if !again {
		if calls > 1 {
			failure = unavailable(fmt.Sprintf("%d attempts", calls), err)
		}
		return fail(cl.op, cl.name, failure)
	}
	if a.pause(ctx, wait, turn.Waiting) != nil {
		return c.waitEnded(ctx, cl, turn, a, err)
	}
	return nil
}

// waitEnded returns the error of a call that stopped because its context ended or the client
// was closed. Failure is the last error of the store, if any.
func (c *Client) waitEnded(ctx context.Context, cl *call, turn localqueue.Turn, a *attempt, failure error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		cause = ErrClosed
	}
	var why error
	switch {
	case a.held != nil:
		why = a.held.aged(c.now() - a.heldAt)
	case failure != nil && !errors.Is(failure, ctx.Err()):
		why = unavailable("", failure)
	default: // not asked yet: use the last answer to another call of this client
		if known := turn.Obstacle(); known != nil {
			why = c.held(cl, known)
		}
	}
	if why != nil {
		return fail(cl.op, cl.name, why, cause)
	}
	return fail(cl.op, cl.name, cause)
}

// errorOf returns the error of a call that ends with the answer to another call of this client.
func (c *Client) errorOf(cl *call, a *localqueue.Answer) error {
	err := c.held(cl, a)
	if held, ok := err.(*HeldError); ok && cl.Once && a.Done(c.now()) {
		return held.done()
	}
	return err
}

// held returns the answer to another call of this client as an error that says why this call has
// to wait.
func (c *Client) held(cl *call, a *localqueue.Answer) error {
	if a.Refusal == nil {
		return a.Failure
	}
	held := newHeldError(cl.name, a.Refusal).aged(c.now() - a.At)
	held.Place = 0 // the place belongs to the call that asked
	return held
}
