package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// An inquiry is one stand at the store: all attempts of one call under one identity.
type inquiry struct {
	c    *Client
	cl   call // a copy: as a pointer it would send every call to the heap
	slot *slot

	held     *HeldError // the last refusal
	heldAt   time.Duration
	refusals int           // since the last failure
	failures int           // since the last answer
	waiting  bool          // told the observer
	patience time.Duration // an explicit strategy is asked again at this time
}

// ask asks the store until it grants, the call gives up, or ctx ends. It leaves nothing
// behind unless it was granted.
func (c *Client) ask(ctx context.Context, cl *call, s *slot, begin time.Duration) (*Lease, error) {
	q := inquiry{c: c, cl: *cl, slot: s}
	q.cl.req.ID = c.ids.next()
	q.cl.req.Queue = !cl.try && c.caps.Features.Has(store.FeatureQueue)
	for sent := begin; ; sent = c.now() {
		if cl.req.Mode == store.Exclusive && s.crowd.Load() > 0 {
			q.cl.req.Tokens = max(1, c.set.handoverLimit) // for hand-overs
		}
		callCtx, cancel := c.bound(ctx, q.cl.req.TTL)
		answer, err := c.store.Acquire(callCtx, q.cl.req)
		err = noAnswer(ctx, callCtx, err)
		cancel()
		if err == nil && answer.Granted() {
			lease := c.newLease(cl, q.cl.req.ID, sent, answer)
			if c.caps.Instant || c.now() < time.Duration(lease.g.deadline.Load()) {
				return lease, nil
			}
			// The answer took longer than the lease lives. Asking again under the same
			// identity starts the TTL anew.
			err = fmt.Errorf("the answer took %s of a TTL of %s", short(c.now()-sent), short(answer.TTL))
		}
		if err == nil {
			err = q.refused(ctx, answer.Refusal)
		} else {
			err = q.failed(ctx, err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// refused waits after a refusal until it is worth asking again. An error ends the call.
func (q *inquiry) refused(ctx context.Context, r *store.Refusal) error {
	c, cl := q.c, &q.cl
	q.failures = 0
	q.held, q.heldAt = &HeldError{Name: cl.name, Holders: holders(r.Holders), Place: r.Place, Waiters: r.Waiters}, c.now()
	if cl.once && len(r.Holders) > 0 && r.Holders[0].State == store.Done {
		done := fmt.Errorf("%w by %s", ErrDone, ownerText(r.Holders[0].Owner))
		q.slot.shard.mu.Lock()
		q.slot.answerDone(done)
		q.slot.shard.mu.Unlock()
		q.leave()
		return fail(cl.op, cl.name, done)
	}
	if cl.try {
		q.slot.shard.mu.Lock()
		q.slot.answerSame(cl, q.held)
		q.slot.shard.mu.Unlock()
		return fail(cl.op, cl.name, q.held) // a single attempt is not queued: nothing to leave
	}
	q.share()
	if !q.waiting && c.observed() {
		c.emit(Event{Kind: EventWaiting, Name: cl.name, Mode: cl.req.Mode})
	}
	q.waiting = true

	again := r.Again
	if again <= 0 {
		again = leastRetryWait
	}
	if cl.retrySet || !q.cl.req.Queue {
		// A strategy of the caller's, or no queue to be woken from.
		now := c.now()
		if q.patience <= now {
			q.refusals++
			strategy := cl.retry
			if strategy == nil {
				strategy = pollRetry
			}
			wait, more := strategy.Next(q.refusals, q.held)
			if !more {
				q.leave()
				return fail(cl.op, cl.name, q.held, fmt.Errorf("gave up after %d attempts", q.refusals))
			}
			q.patience = now + max(wait, leastRetryWait)
		}
		again = q.patience - now
		if q.cl.req.Queue && r.Again > 0 {
			again = min(again, r.Again) // the waiter's sign of life
		}
	}
	return q.pause(ctx, again)
}

// pollRetry is for stores without a queue.
var pollRetry = Backoff(10*time.Millisecond, 500*time.Millisecond)

// share lets the single attempts of this client know who is in the way.
func (q *inquiry) share() {
	s := q.slot
	s.shard.mu.Lock()
	s.held, s.heldAt = q.held, q.heldAt
	s.answerTries(q.c)
	s.shard.mu.Unlock()
}

// failed handles an error of the store: it waits before the next attempt, or ends the call.
func (q *inquiry) failed(ctx context.Context, err error) error {
	c, cl := q.c, &q.cl
	if ctx.Err() != nil || c.life.Err() != nil {
		return q.over(ctx, err)
	}
	if permanent(err) {
		q.leave()
		return fail(cl.op, cl.name, err)
	}
	q.failures++
	q.refusals = 0
	unavailable := &unavailableError{err: err}
	if c.observed() {
		c.emit(Event{Kind: EventError, Name: cl.name, Mode: cl.req.Mode, Attempt: q.failures, Err: unavailable})
	}
	strategy := cl.retry
	if strategy == nil {
		strategy = defaultRetry
	}
	wait, again := strategy.Next(q.failures, unavailable)
	if !again || cl.try {
		q.leave()
		if q.failures > 1 {
			unavailable = &unavailableError{fmt.Sprintf("%d attempts", q.failures), err}
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
	return q.over(ctx, err)
}

// pause waits for the store's push, for at most d.
func (q *inquiry) pause(ctx context.Context, d time.Duration) error {
	c := q.c
	waitCtx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	var err error
	if q.cl.req.Queue {
		err = c.store.Wait(waitCtx, q.cl.req.Name, q.cl.req.ID)
	} else {
		<-waitCtx.Done()
	}
	switch {
	case ctx.Err() != nil || c.life.Err() != nil:
		return q.over(ctx, nil)
	case err != nil && waitCtx.Err() == nil:
		return q.failed(ctx, err)
	}
	return nil
}

// over ends the call because its context or the client ended. Failure is the store's last
// error, if any.
func (q *inquiry) over(ctx context.Context, failure error) error {
	q.leave()
	cause := context.Cause(ctx)
	if cause == nil {
		cause = ErrClosed
	}
	var held *HeldError
	if q.held != nil {
		held = q.held.aged(q.c.now() - q.heldAt)
	} else { // not asked yet: what an earlier one of this client was told
		q.slot.shard.mu.Lock()
		held = q.slot.answer(q.c, &q.cl)
		q.slot.shard.mu.Unlock()
	}
	switch {
	case held != nil:
		return fail(q.cl.op, q.cl.name, held, cause)
	case failure != nil && !errors.Is(failure, ctx.Err()):
		return fail(q.cl.op, q.cl.name, &unavailableError{err: failure}, cause)
	}
	return fail(q.cl.op, q.cl.name, cause)
}

// leave takes back whatever the store may have noted for this identity: a place in the
// queue, or a grant whose answer was lost.
func (q *inquiry) leave() {
	c, name, id, ttl := q.c, q.cl.req.Name, q.cl.req.ID, q.cl.req.TTL
	if c.caps.Instant { // cheaper than a goroutine, and exact
		c.store.Leave(context.Background(), name, id)
		return
	}
	c.background(func(ctx context.Context) {
		c.persist(ctx, ttl, func(ctx context.Context) error { return c.store.Leave(ctx, name, id) })
	})
}
