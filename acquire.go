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
	attempts int           // that the caller's strategy was asked about
	failures int           // since the last answer
	sent     time.Duration // when the last call was sent
	failing  time.Duration // when the first call was sent that failed since the last answer
	spins    int           // refusals in a row that came at once after a wake-up
	unsure   bool          // an attempt failed, and may have been granted
	waiting  bool          // told the observer
	renewed  bool          // asked again for all of the TTL
	left     bool          // the store may have a place or a grant to take back
	patience time.Duration // the strategy is asked again at this time
}

// ask asks the store until it grants, the call gives up, or ctx ends. It leaves nothing
// behind unless it was granted. Sent is now.
func (c *Client) ask(ctx context.Context, cl *call, s *slot, sent time.Duration) (*Lease, error) {
	cl.c, cl.slot, cl.left = c, s, true
	cl.req.Queue = !cl.try && c.caps.Features.Has(store.FeatureQueue)
	cl.takePlace()
	for ; ; sent = c.now() {
		if cl.req.Mode == store.Exclusive && s.crowd.Load() > 0 {
			cl.req.Tokens = max(1, c.set.handoverLimit) // for hand-overs
		}
		limit := cl.req.TTL
		if cl.failures > 0 && cl.retry == nil {
			limit = min(limit, cl.failing+patience-sent)
		}
		cl.sent = sent
		callCtx, cancel := c.bound(ctx, limit)
		answer, err := c.store.Acquire(callCtx, cl.req)
		err = noReply(ctx, callCtx, err)
		cancel()
		if err == nil && answer.Granted() && cl.noRenew && !cl.renewed && answer.TTL < cl.req.TTL {
			// A store may grant less to who waits, to be renewed as always. Asking again
			// under the same identity starts the TTL anew.
			cl.renewed = true
			continue
		}
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

// takePlace gives the call its identity: a new one, or the place in the store's queue that
// another call of this client left.
func (cl *call) takePlace() {
	s := cl.slot
	if cl.waiting { // only then can there be one: an uncontended call takes no mutex
		s.shard.mu.Lock()
		place := s.place
		s.place = nil
		s.shard.mu.Unlock()
		if place != nil {
			if cl.canTake(place) {
				cl.req.ID = place.ID
				return
			}
			left := make(chan struct{})
			cl.c.leaveThen(place, func() { close(left) })
			<-left
		}
	}
	cl.req.ID = cl.c.ids.next()
}

// canTake reports whether the call may go on under the identity of a request that gave up.
// The store may grant that request at any moment, as it was made, so both must be equal.
func (cl *call) canTake(place *store.Request) bool {
	return cl.req.Queue && cl.sameShape(place.Mode, place.Weight, place.Limit) &&
		cl.req.TTL == place.TTL && cl.req.Meta == place.Meta
}

// leavePlace leaves the place in the store's queue to the next of this client, if there is
// one that asks for the same. The order of arrival is that of clients.
func (cl *call) leavePlace() bool {
	s := cl.slot
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	w := s.first
	if w == nil || w.call.try || cl.c.life.Err() != nil || !cl.canTake(&w.call.req) {
		return false
	}
	place := cl.req
	s.place = &place
	return true
}

// refused waits after a refusal until it is worth asking again. An error ends the call.
func (cl *call) refused(ctx context.Context, r *store.Refusal) error {
	c, s := cl.c, cl.slot
	before := cl.heldAt
	cl.failures = 0
	cl.held, cl.heldAt = &HeldError{Name: cl.name, Holders: holders(r.Holders), Place: r.Place, Waiters: r.Waiters}, c.now()
	if cl.try {
		s.shard.mu.Lock()
		s.answerSame(cl, cl.held)
		s.shard.mu.Unlock()
	} else {
		cl.share(known{held: cl.held, at: cl.heldAt})
	}
	if done := cl.held.done(); cl.once && done != nil {
		return fail(cl.op, cl.name, done)
	}
	if cl.try {
		cl.left = false // a single attempt is not queued
		return fail(cl.op, cl.name, cl.held)
	}
	cl.tellWaiting(c)

	if !cl.req.Queue { // nothing to be woken from
		wait, err := cl.consult()
		if err != nil {
			return err
		}
		return cl.doze(ctx, wait, nil)
	}
	again := max(r.Again, leastRetryWait)
	if cl.retrySet {
		wait, err := cl.consult()
		if err != nil {
			return err
		}
		again = min(again, wait) // the store's is the waiter's sign of life
	}
	// A store that wakes for no reason must not make the client spin.
	if cl.spins++; cl.heldAt-before > leastRetryWait {
		cl.spins = 0
	}
	if cl.spins > 3 && !sleep(ctx, min(again, time.Duration(cl.spins)*leastRetryWait)) {
		return cl.over(ctx, nil)
	}
	return cl.pause(ctx, again)
}

// consult asks the strategy after a refusal, if its last wait is over, and returns how long
// it wants to wait from now. An error ends the call.
func (cl *call) consult() (time.Duration, error) {
	now := cl.c.now()
	if cl.patience <= now {
		cl.attempts++
		strategy := cl.retry
		if !cl.retrySet {
			strategy = pollRetry
		}
		wait, more := strategy.Next(cl.attempts, cl.held)
		if !more {
			return 0, fail(cl.op, cl.name, cl.held, fmt.Errorf("gave up after %d attempts", cl.attempts))
		}
		cl.patience = now + max(wait, leastRetryWait)
	}
	return cl.patience - now, nil
}

// tellWaiting tells the observer once that the call has to wait.
func (cl *call) tellWaiting(c *Client) {
	if !cl.waiting && c.observed() {
		c.emit(Event{Kind: EventWaiting, Name: cl.name, Mode: cl.req.Mode})
	}
	cl.waiting = true
}

// pollRetry is for stores without a queue.
var pollRetry = Backoff(10*time.Millisecond, pollMost)

const pollMost = 500 * time.Millisecond

// share lets the calls of this client that do not wait know what the store said.
func (cl *call) share(k known) {
	s := cl.slot
	s.shard.mu.Lock()
	s.known = k
	s.answerAll(cl.c)
	s.shard.mu.Unlock()
}

// failed handles an error of the store: it waits before the next attempt, or ends the call.
func (cl *call) failed(ctx context.Context, err error) error {
	c := cl.c
	if ctx.Err() != nil || c.life.Err() != nil {
		return cl.over(ctx, err)
	}
	if permanent(err) {
		return fail(cl.op, cl.name, err)
	}
	failure := unavailable("", err)
	cl.share(known{at: c.now(), failure: failure})
	if cl.failures++; cl.failures == 1 {
		cl.failing = cl.sent
	}
	if c.observed() {
		c.emit(Event{Kind: EventError, Name: cl.name, Mode: cl.req.Mode, Attempt: cl.failures, Err: failure})
	}
	attempt, strategy := cl.failures, cl.retry
	switch {
	case cl.retrySet:
		cl.attempts++
		attempt = cl.attempts
	case strategy == nil:
		strategy = defaultRetry
	}
	wait, again := strategy.Next(attempt, failure)
	if cl.retry == nil && c.now()+wait >= cl.failing+patience {
		again = false
	}
	if !again || cl.try {
		if attempt > 1 {
			failure = unavailable(fmt.Sprintf("%d attempts", attempt), err)
		}
		return fail(cl.op, cl.name, failure)
	}
	cl.unsure = true
	return cl.doze(ctx, max(wait, leastRetryWait), err)
}

// doze waits for d, but not longer than pollMost if others of this client, who may be in a
// hurry, wait behind. Failure is the store's last error, if any.
func (cl *call) doze(ctx context.Context, d time.Duration, failure error) error {
	for end := cl.c.now() + d; d > 0; d = end - cl.c.now() {
		timer := time.NewTimer(min(d, pollMost))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return cl.over(ctx, failure)
		case <-cl.c.life.Done():
			timer.Stop()
			return cl.over(ctx, failure)
		}
		if cl.slot.crowd.Load() > 0 {
			return nil
		}
	}
	return nil
}

// pause waits for the store's push, for at most d.
func (cl *call) pause(ctx context.Context, d time.Duration) error {
	c := cl.c
	waitCtx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	err := c.store.Wait(waitCtx, cl.req.Name, cl.req.ID)
	switch {
	case ctx.Err() != nil || c.life.Err() != nil:
		return cl.over(ctx, nil)
	case err != nil && waitCtx.Err() == nil:
		cl.sent = c.now() // a Wait may have been healthy for long before it failed
		return cl.failed(ctx, err)
	}
	return nil
}

// over ends the call because its context or the client ended. Failure is the store's last
// error, if any.
func (cl *call) over(ctx context.Context, failure error) error {
	// After a failure the place may be a grant that nobody heard of, older than who would
	// take it over.
	cl.left = cl.unsure || failure != nil || !cl.leavePlace()
	cause := context.Cause(ctx)
	if cause == nil {
		cause = ErrClosed
	}
	var why error
	switch {
	case cl.held != nil:
		why = cl.held.aged(cl.c.now() - cl.heldAt)
	case failure != nil && !errors.Is(failure, ctx.Err()):
		why = unavailable("", failure)
	default: // not asked yet: what an earlier one of this client was told
		cl.slot.shard.mu.Lock()
		why = cl.slot.inTheWay(cl.c, cl)
		cl.slot.shard.mu.Unlock()
	}
	if why != nil {
		return fail(cl.op, cl.name, why, cause)
	}
	return fail(cl.op, cl.name, cause)
}

// leaveTimeout bounds the first attempt to take back what the store may have noted for a
// call. The next calls of this client for the same name wait for it.
const leaveTimeout = time.Second

// leaveThen takes back in the background whatever the store may have noted for a request: a
// place in the queue, or a grant whose reply was lost. It calls then after the first attempt.
func (c *Client) leaveThen(req *store.Request, then func()) {
	name, id, ttl := req.Name, req.ID, req.TTL
	if c.caps.Instant {
		c.store.Leave(context.Background(), name, id)
		then()
		return
	}
	c.background(func(ctx context.Context) {
		callCtx, cancel := context.WithTimeout(ctx, leaveTimeout)
		err := c.store.Leave(callCtx, name, id)
		cancel()
		then()
		if err != nil && !permanent(err) {
			c.persist(ctx, ttl, func(ctx context.Context) error { return c.store.Leave(ctx, name, id) })
		}
	})
}
