package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// An inquiry is the state of one stand at the store: all attempts under one identity.
type inquiry struct {
	c        *Client
	slot     *slot
	held     *HeldError // the last refusal
	heldAt   time.Duration
	refusals int           // since the last failure
	failures int           // since the last answer
	waiting  bool          // told the observer
	patience time.Duration // an explicit strategy is asked again at this time
}

// ask asks the store until it grants, the call gives up, or ctx ends. It leaves nothing
// behind unless it was granted. Sent is now.
func (c *Client) ask(ctx context.Context, cl *call, s *slot, sent time.Duration) (*Lease, error) {
	cl.c, cl.slot = c, s
	cl.req.ID = c.ids.next()
	cl.req.Queue = !cl.try && c.caps.Features.Has(store.FeatureQueue)
	for ; ; sent = c.now() {
		if cl.req.Mode == store.Exclusive && s.crowd.Load() > 0 {
			cl.req.Tokens = max(1, c.set.handoverLimit) // for hand-overs
		}
		callCtx, cancel := c.bound(ctx, cl.req.TTL)
		answer, err := c.store.Acquire(callCtx, cl.req)
		err = noAnswer(ctx, callCtx, err)
		cancel()
		if err == nil && answer.Granted() {
			lease := c.newLease(cl, sent, answer)
			if c.caps.Instant || c.now() < time.Duration(lease.g.deadline.Load()) {
				return lease, nil
			}
			// The answer took longer than the lease lives. Asking again under the same
			// identity starts the TTL anew.
			err = fmt.Errorf("the answer took %s of a TTL of %s", short(c.now()-sent), short(answer.TTL))
		}
		if err == nil {
			err = cl.refused(ctx, answer.Refusal)
		} else {
			err = cl.failed(ctx, err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// refused waits after a refusal until it is worth asking again. An error ends the call.
func (cl *call) refused(ctx context.Context, r *store.Refusal) error {
	c := cl.c
	cl.failures = 0
	cl.held, cl.heldAt = &HeldError{Name: cl.name, Holders: holders(r.Holders), Place: r.Place, Waiters: r.Waiters}, c.now()
	if cl.once && len(r.Holders) > 0 && r.Holders[0].State == store.Done {
		done := fmt.Errorf("%w by %s", ErrDone, ownerText(r.Holders[0].Owner))
		cl.slot.shard.mu.Lock()
		cl.slot.answerDone(done)
		cl.slot.shard.mu.Unlock()
		cl.leave()
		return fail(cl.op, cl.name, done)
	}
	if cl.try {
		cl.slot.shard.mu.Lock()
		cl.slot.answerSame(cl, cl.held)
		cl.slot.shard.mu.Unlock()
		return fail(cl.op, cl.name, cl.held) // a single attempt is not queued: nothing to leave
	}
	cl.share()
	cl.tellWaiting(c)
	again := r.Again
	if again <= 0 {
		again = leastRetryWait
	}
	if cl.retrySet || !cl.req.Queue {
		// A strategy of the caller's, or no queue to be woken from.
		now := c.now()
		if cl.patience <= now {
			cl.refusals++
			strategy := cl.retry
			if strategy == nil {
				strategy = pollRetry
			}
			wait, more := strategy.Next(cl.refusals, cl.held)
			if !more {
				cl.leave()
				return fail(cl.op, cl.name, cl.held, fmt.Errorf("gave up after %d attempts", cl.refusals))
			}
			cl.patience = now + max(wait, leastRetryWait)
		}
		again = cl.patience - now
		if cl.req.Queue && r.Again > 0 {
			again = min(again, r.Again) // the waiter's sign of life
		}
	}
	return cl.pause(ctx, again)
}

// tellWaiting tells the observer once that the call has to wait.
func (cl *call) tellWaiting(c *Client) {
	if !cl.waiting && c.observed() {
		c.emit(Event{Kind: EventWaiting, Name: cl.name, Mode: cl.req.Mode})
	}
	cl.waiting = true
}

// pollRetry is for stores without a queue.
var pollRetry = Backoff(10*time.Millisecond, 500*time.Millisecond)

// share lets the single attempts of this client know who is in the way.
func (cl *call) share() {
	s := cl.slot
	s.shard.mu.Lock()
	s.held, s.heldAt = cl.held, cl.heldAt
	s.answerTries(cl.c)
	s.shard.mu.Unlock()
}

// failed handles an error of the store: it waits before the next attempt, or ends the call.
func (cl *call) failed(ctx context.Context, err error) error {
	c := cl.c
	if ctx.Err() != nil || c.life.Err() != nil {
		return cl.over(ctx, err)
	}
	if permanent(err) {
		cl.leave()
		return fail(cl.op, cl.name, err)
	}
	cl.failures++
	cl.refusals = 0
	unavailable := &unavailableError{err: err}
	if c.observed() {
		c.emit(Event{Kind: EventError, Name: cl.name, Mode: cl.req.Mode, Attempt: cl.failures, Err: unavailable})
	}
	strategy := cl.retry
	if strategy == nil {
		strategy = defaultRetry
	}
	wait, again := strategy.Next(cl.failures, unavailable)
	if !again || cl.try {
		cl.leave()
		if cl.failures > 1 {
			unavailable = &unavailableError{fmt.Sprintf("%d attempts", cl.failures), err}
		}
		return fail(cl.op, cl.name, unavailable)
	}
	timer := time.NewTimer(max(wait, leastRetryWait))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
	case <-c.life.Done():
	}
	return cl.over(ctx, err)
}

// pause waits for the store's push, for at most d.
func (cl *call) pause(ctx context.Context, d time.Duration) error {
	c := cl.c
	waitCtx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	var err error
	if cl.req.Queue {
		err = c.store.Wait(waitCtx, cl.req.Name, cl.req.ID)
	} else {
		<-waitCtx.Done()
	}
	switch {
	case ctx.Err() != nil || c.life.Err() != nil:
		return cl.over(ctx, nil)
	case err != nil && waitCtx.Err() == nil:
		return cl.failed(ctx, err)
	}
	return nil
}

// over ends the call because its context or the client ended. Failure is the store's last
// error, if any.
func (cl *call) over(ctx context.Context, failure error) error {
	cl.leave()
	cause := context.Cause(ctx)
	if cause == nil {
		cause = ErrClosed
	}
	var held *HeldError
	if cl.held != nil {
		held = cl.held.aged(cl.c.now() - cl.heldAt)
	} else { // not asked yet: what an earlier one of this client was told
		cl.slot.shard.mu.Lock()
		held = cl.slot.answer(cl.c, cl)
		cl.slot.shard.mu.Unlock()
	}
	switch {
	case held != nil:
		return fail(cl.op, cl.name, held, cause)
	case failure != nil && !errors.Is(failure, ctx.Err()):
		return fail(cl.op, cl.name, &unavailableError{err: failure}, cause)
	}
	return fail(cl.op, cl.name, cause)
}

// leave takes back whatever the store may have noted for this identity: a place in the
// queue, or a grant whose answer was lost.
func (cl *call) leave() {
	c, name, id, ttl := cl.c, cl.req.Name, cl.req.ID, cl.req.TTL
	if c.caps.Instant { // cheaper than a goroutine, and exact
		c.store.Leave(context.Background(), name, id)
		return
	}
	c.background(func(ctx context.Context) {
		c.persist(ctx, ttl, func(ctx context.Context) error { return c.store.Leave(ctx, name, id) })
	})
}
