package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// forever is a time that does not come.
const forever = time.Duration(math.MaxInt64)

// renewBatch is how many grants go into one call: enough to make a call's cost small, few
// enough that one slow call is not everybody's.
const renewBatch = 256

// renewals looks after all grants of a client: it renews them in time and ends those whose
// deadline is over. It is a heap by the time at which each is due, and one timer.
//
// A call that hangs delays nobody's loss: calls have goroutines of their own, and while one
// is under way its grants are due at their deadlines.
type renewals struct {
	mu     sync.Mutex
	heap   dueHeap
	timer  *time.Timer
	armed  time.Duration // when the timer fires; forever if it does not
	closed bool
}

// add puts a new grant under care. It is false after shut.
func (r *renewals) add(g *grant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.heap.push(g)
	r.arm(g.c)
	return true
}

// arm sets the timer for the first that is due. A timer that fires too early is left
// alone: that is cheaper than to set it again for every lock that comes and goes.
func (r *renewals) arm(c *Client) {
	if len(r.heap) == 0 || r.closed {
		return
	}
	due := r.heap[0].due
	switch {
	case r.timer == nil:
		r.timer = time.AfterFunc(due-c.now(), c.fire)
	case due < r.armed:
		r.timer.Reset(due - c.now())
	default:
		return
	}
	r.armed = due
}

// remove ends the care for a grant that is to be released.
func (r *renewals) remove(g *grant) {
	r.mu.Lock()
	if g.index >= 0 && !g.expired {
		r.heap.remove(g)
	}
	r.mu.Unlock()
}

// all returns the grants under care.
func (r *renewals) all() []*grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.heap)
}

// withdraw ends the care for a grant if it is wanted or expired, and reports whether it did.
func (r *renewals) withdraw(g *grant, wanted bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.index < 0 || !wanted && !g.expired {
		return false
	}
	r.heap.remove(g)
	return true
}

// shut keeps new grants out and stops the timer for good.
func (r *renewals) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// fire is the timer's function: it starts what is due.
func (c *Client) fire() {
	r := &c.renewals
	open := c.calls.enter() // if not, Close releases them all
	if open {
		defer c.calls.leave()
	}
	var due, expired, forgotten []*grant
	r.mu.Lock()
	now := c.now()
	r.armed = forever
loop:
	for len(r.heap) > 0 {
		g := r.heap[0]
		deadline := time.Duration(g.deadline.Load())
		switch {
		case g.expired && g.due <= now && !open:
			g.due = forever
			r.heap.fix(g)
		case g.expired && g.due <= now:
			r.heap.remove(g)
			forgotten = append(forgotten, g)
		case g.expired:
			break loop
		case deadline <= now:
			r.expire(g)
			expired = append(expired, g)
		case !g.inFlight && g.renewAt <= now+g.ttl/20: // soon counts as now: fewer, larger calls
			g.inFlight = true
			g.schedule()
			r.heap.fix(g)
			due = append(due, g)
		default:
			break loop
		}
	}
	r.arm(c)
	r.mu.Unlock()

	lost := c.endLost(expired, (*grant).expiryReason)
	// Last, so that no renewal waits for an observer.
	defer c.tellLost(lost)
	if !open {
		return
	}
	if len(forgotten) > 0 {
		c.background(func(ctx context.Context) { c.forget(ctx, forgotten) })
	}
	// Leases of one TTL go together, so that a short one does not set the timeout of others.
	slices.SortFunc(due, func(a, b *grant) int { return cmp.Compare(a.ttl, b.ttl) })
	for len(due) > 0 {
		n := 1
		for n < min(len(due), renewBatch) && due[n].ttl == due[0].ttl {
			n++
		}
		batch := due[:n]
		due = due[n:]
		c.background(func(ctx context.Context) { c.renewBatch(ctx, batch) })
	}
}

// expire marks a grant as past its deadline. It stays under care until the store has
// forgotten it too.
func (r *renewals) expire(g *grant) {
	g.expired = true
	g.due = g.expiry()
	r.heap.fix(g)
}

// expire ends a lease whose deadline was found to be over, unless that is under way, and
// returns why it is lost.
func (c *Client) expire(g *grant) error {
	r := &c.renewals
	r.mu.Lock()
	first := g.index >= 0 && !g.expired
	if first {
		r.expire(g)
		r.arm(c)
	}
	r.mu.Unlock()
	if first {
		c.lose([]*grant{g}, (*grant).expiryReason)
	}
	return g.expiryReason()
}

// expiryReason says why the deadline came.
func (g *grant) expiryReason() *lostError {
	g.c.renewals.mu.Lock()
	defer g.c.renewals.mu.Unlock()
	switch {
	case g.maxEnd > 0 && g.maxEnd <= time.Duration(g.deadline.Load()):
		return &lostError{reason: "MaxHold is over"}
	case g.noRenew:
		return &lostError{reason: fmt.Sprintf("its TTL of %s is over and it was not renewed", g.ttl)}
	}
	return &lostError{reason: "it could not be renewed in time", err: g.lastErr}
}

// lose ends whoever holds grants that this client may not use any more, and sends the
// waiters to the store.
func (c *Client) lose(grants []*grant, why func(*grant) *lostError) {
	c.tellLost(c.endLost(grants, why))
}

// endLost ends the holders first: they must know before anyone else can be granted, and
// none of them waits for an observer.
func (c *Client) endLost(grants []*grant, why func(*grant) *lostError) (ended []*Lease) {
	for _, g := range grants {
		lost := why(g)
		if g.exclusive {
			g.shard.mu.Lock()
			g.lost = lost // from here on it is not handed over
			g.shard.mu.Unlock()
		}
		if l := g.lease.Load(); l.finish(l.named(lost)) {
			ended = append(ended, l)
		}
	}
	for _, g := range grants {
		c.unslot(g)
	}
	return ended
}

func (c *Client) tellLost(ended []*Lease) {
	if !c.observed() {
		return
	}
	for _, l := range ended {
		e := l.event(EventLost)
		e.Err = l.Err()
		c.emit(e)
	}
}

// forget takes expired grants out of the store. One that counts TTLs may have forgotten them
// by now; one with sessions has not, nor has any after MaxHold.
func (c *Client) forget(ctx context.Context, grants []*grant) {
	inParallel(grants, func(g *grant) {
		c.persist(ctx, g.ttl, func(ctx context.Context) error { return c.store.Leave(ctx, g.name, g.id) })
	})
}

// renewTimeout bounds one renewal, so that several fit between the first and the deadline.
func renewTimeout(ttl time.Duration) time.Duration { return max(ttl/6, 10*time.Millisecond) }

// renewBatch renews grants of one TTL in one call.
func (c *Client) renewBatch(ctx context.Context, batch []*grant) {
	r := &c.renewals
	requests := make([]store.Renewal, len(batch))
	r.mu.Lock()
	sent := c.now()
	for i, g := range batch {
		requests[i] = g.renewal(0)
	}
	r.mu.Unlock()
	outcomes, err := c.callRenew(ctx, renewTimeout(batch[0].ttl), requests)

	var gone []*grant
	r.mu.Lock()
	now := c.now()
	for i, g := range batch {
		g.inFlight = false
		if !r.settle(g, sent, now, outcomes[i]) {
			gone = append(gone, g)
		}
		if outcomes[i].Status == store.Unknown {
			g.lastErr = err
			// At once if the call used up its time, else a little later.
			g.renewAt = max(now, sent+g.ttl/20)
		}
		if g.index >= 0 && !g.expired {
			g.schedule()
			r.heap.fix(g)
		}
	}
	r.arm(c)
	r.mu.Unlock()
	c.lose(gone, goneReason)
	if c.observed() {
		for i, g := range batch {
			c.emitRenewed(g, now, outcomes[i], err)
		}
	}
}

func goneReason(*grant) *lostError { return errGone }

var errGone = &lostError{reason: "the store says that it is not held any more: it expired there or was broken by force"}

// callRenew makes one call. It returns an outcome for each request, whatever happens; the
// error says why some of them are unknown.
func (c *Client) callRenew(ctx context.Context, timeout time.Duration, requests []store.Renewal) ([]store.Renewed, error) {
	callCtx, cancel := c.bound(ctx, timeout)
	defer cancel()
	outcomes, err := c.store.Renew(callCtx, requests)
	err = noReply(ctx, callCtx, err)
	if err == nil && len(outcomes) != len(requests) {
		err = fmt.Errorf("store answered %d of %d renewals", len(outcomes), len(requests))
	}
	if err != nil {
		return make([]store.Renewed, len(requests)), err
	}
	for i := range outcomes {
		if outcomes[i].Status == store.Extended && outcomes[i].TTL <= 0 {
			outcomes[i].Status = store.Unknown // a careless store
		}
		if outcomes[i].Status == store.Unknown {
			err = errors.New("the store does not know whether it was renewed")
		}
	}
	return outcomes, err
}

// settle notes the outcome of a renewal. It is false if the grant is gone. A lease whose
// deadline is over stays lost, however good the news.
func (r *renewals) settle(g *grant, sent, now time.Duration, out store.Renewed) bool {
	if g.index < 0 || g.expired {
		return true
	}
	switch out.Status {
	case store.Gone:
		r.heap.remove(g)
		return false
	case store.Extended:
		if now < time.Duration(g.deadline.Load()) {
			g.extend(sent, out.TTL)
			g.lastErr = nil
			r.heap.fix(g)
		}
	}
	return true
}

func (c *Client) emitRenewed(g *grant, now time.Duration, out store.Renewed, err error) {
	l := g.lease.Load()
	switch out.Status {
	case store.Extended:
		e := l.event(EventRenewed)
		e.Slack = time.Duration(g.deadline.Load()) - now
		c.emit(e)
	case store.Unknown:
		e := l.event(EventError)
		e.Err = unavailable("renewal", err)
		c.emit(e)
	}
}

// renewNow renews one grant for a caller that waits for it.
func (c *Client) renewNow(ctx context.Context, g *grant, tokens int) (store.Renewed, error) {
	r := &c.renewals
	r.mu.Lock()
	sent := c.now()
	request := g.renewal(tokens)
	timeout := min(callTimeout, time.Duration(g.deadline.Load())-sent)
	r.mu.Unlock()
	outcomes, err := c.callRenew(ctx, timeout, []store.Renewal{request})
	out := outcomes[0]

	r.mu.Lock()
	now := c.now()
	kept := r.settle(g, sent, now, out)
	r.arm(c)
	r.mu.Unlock()
	if !kept {
		c.lose([]*grant{g}, goneReason)
		return out, errGone
	}
	if c.observed() {
		c.emitRenewed(g, now, out, err)
	}
	if out.Status == store.Unknown {
		return out, unavailable("", err)
	}
	if lateErr := g.lease.Load().Err(); errors.Is(lateErr, ErrLost) {
		return out, lateErr
	}
	return out, nil
}
