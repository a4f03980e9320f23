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
	spins    int           // refusals in a row that came at once after a wake-up
	unsure   bool          // an attempt failed, and may have been granted
	waiting  bool          // told the observer
	renewed  bool          // asked again for all of the TTL
	patience time.Duration // the strategy is asked again at this time
}

// ask asks the store until it grants, the call gives up, or ctx ends. It leaves nothing
// behind unless it was granted. Sent is now.
func (c *Client) ask(ctx context.Context, cl *call, s *slot, sent time.Duration) (*Lease, error) {
	cl.c, cl.slot = c, s
	cl.req.Queue = !cl.try && c.caps.Features.Has(store.FeatureQueue)
	cl.takePlace()
	for ; ; sent = c.now() {
		if cl.req.Mode == store.Exclusive && s.crowd.Load() > 0 {
			cl.req.Tokens = max(1, c.set.handoverLimit) // for hand-overs
		}
		callCtx, cancel := c.bound(ctx, cl.req.TTL)
		answer, err := c.store.Acquire(callCtx, cl.req)
		err = noAnswer(ctx, callCtx, err)
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
	if cl.waiting { // only then there may be one, and the plain path is spared the mutex
		s.shard.mu.Lock()
		place := s.place
		s.place = placeholder{}
		s.shard.mu.Unlock()
		if !place.id.IsZero() {
			if cl.req.Queue && cl.sameShape(place.mode, place.weight, place.limit) {
				cl.req.ID = place.id
				return
			}
			cl.c.leaveStore(s.name, place.id, place.ttl)
		}
	}
	cl.req.ID = cl.c.ids.next()
}

// leavePlace leaves the place in the store's queue to the next of this client, if there is
// one that asks for the same. The order of arrival is that of clients.
func (cl *call) leavePlace() bool {
	s := cl.slot
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	w := s.first
	if !cl.req.Queue || w == nil || w.call.try || !w.call.sameShape(cl.req.Mode, cl.req.Weight, cl.req.Limit) || cl.c.life.Err() != nil {
		return false
	}
	s.place = placeholder{cl.req.ID, cl.req.Mode, cl.req.Weight, cl.req.Limit, cl.req.TTL}
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
		cl.leave()
		return fail(cl.op, cl.name, done)
	}
	if cl.try {
		return fail(cl.op, cl.name, cl.held) // a single attempt is not queued: nothing to leave
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
			cl.leave()
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
		cl.leave()
		return fail(cl.op, cl.name, err)
	}
	unavailable := &unavailableError{err: err}
	cl.share(known{at: c.now(), failure: unavailable})
	cl.failures++
	if c.observed() {
		c.emit(Event{Kind: EventError, Name: cl.name, Mode: cl.req.Mode, Attempt: cl.failures, Err: unavailable})
	}
	attempt, strategy := cl.failures, cl.retry
	switch {
	case cl.retrySet:
		cl.attempts++
		attempt = cl.attempts
	case strategy == nil:
		strategy = defaultRetry
	}
	wait, again := strategy.Next(attempt, unavailable)
	if !again || cl.try {
		cl.leave()
		if attempt > 1 {
			unavailable = &unavailableError{fmt.Sprintf("%d attempts", attempt), err}
		}
		return fail(cl.op, cl.name, unavailable)
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
		return cl.failed(ctx, err)
	}
	return nil
}

// over ends the call because its context or the client ended. Failure is the store's last
// error, if any.
func (cl *call) over(ctx context.Context, failure error) error {
	// After a failure the place may be a grant that nobody heard of, older than who would
	// take it over.
	if cl.unsure || failure != nil || !cl.leavePlace() {
		cl.leave()
	}
	cause := context.Cause(ctx)
	if cause == nil {
		cause = ErrClosed
	}
	var why error
	switch {
	case cl.held != nil:
		why = cl.held.aged(cl.c.now() - cl.heldAt)
	case failure != nil && !errors.Is(failure, ctx.Err()):
		why = &unavailableError{err: failure}
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

// leave takes back whatever the store may have noted for this call: a place in the queue,
// or a grant whose answer was lost.
func (cl *call) leave() { cl.c.leaveStore(cl.req.Name, cl.req.ID, cl.req.TTL) }

func (c *Client) leaveStore(name string, id store.ID, ttl time.Duration) {
	if c.caps.Instant { // cheaper than a goroutine, and exact
		c.store.Leave(context.Background(), name, id)
		return
	}
	c.background(func(ctx context.Context) {
		c.persist(ctx, ttl, func(ctx context.Context) error { return c.store.Leave(ctx, name, id) })
	})
}
