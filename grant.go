package holdfast

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A grant is what the store gave this client: one identity on one name. Leases hold it one
// after the other if it is handed over, several at a time if they are reentrant.
type grant struct {
	c         *Client
	id        store.ID
	name      string // as the store sees it
	meta      string
	ttl       time.Duration // asked for by the call
	granted   time.Duration // by the first answer, which may be less
	weight    int
	exclusive bool // when it was granted
	noRenew   bool

	lease    atomic.Pointer[Lease] // the one that holds it now, or held it last
	deadline atomic.Int64          // G2, on the client's clock; a time.Duration

	// For hand-over, if exclusive; under the mutex of the shard.
	shard   *shard        // of the name
	slot    *slot         // of the name, until it is given up, lost or no longer exclusive
	next    int64         // the next token to give
	tokens  int32         // how many there are from there: as many hand-overs without asking the store
	crowded bool          // other processes wait
	slice   time.Duration // when this slice began
	lost    *lostError    // why it is not to be handed over any more

	// For renewal; under the mutex of renewals.
	sent     time.Duration // when the newest call was sent that the deadline counts from
	renewAt  time.Duration
	due      time.Duration // when renewals looks at it next
	maxEnd   time.Duration // MaxHold's end, 0 if none
	index    int           // in the heap, -1 if not in it
	mode     store.Mode    // now
	inFlight bool          // a renewal is under way
	expired  bool          // lost, and waits for its clean-up
	lastErr  error         // of the last renewal
}

// margin is what a lease ends early by: for clocks that run at different speeds and for
// the time that a timer and a cancellation take. A twentieth covers both, and a second is
// enough for any TTL.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, time.Millisecond), time.Second)
}

// renewAfter is the part of a TTL after which a lease is renewed: late enough to be cheap,
// early enough for several attempts.
func renewAfter(ttl time.Duration) time.Duration { return ttl / 3 }

// earlyRenewal is when a lease is renewed that was granted for much less than was asked for.
// Whoever releases it sooner is spared that.
const earlyRenewal = 10 * time.Millisecond

// newLease makes the grant that an answer gives and its first lease, in one allocation.
func (c *Client) newLease(cl *call, sent time.Duration, a store.Answer) *Lease {
	both := new(struct {
		grant grant
		lease Lease
	})
	g, l := &both.grant, &both.lease
	g.c, g.id, g.name, g.mode, g.weight = c, cl.req.ID, cl.req.Name, cl.req.Mode, cl.req.Weight
	g.exclusive, g.noRenew, g.ttl, g.meta = cl.req.Mode == store.Exclusive, cl.noRenew, cl.req.TTL, cl.req.Meta
	g.granted = min(a.TTL, g.ttl)
	g.next, g.tokens, g.crowded, g.slice, g.index = a.Token, int32(a.Tokens), a.Waiters > 0, sent, -1
	if cl.maxHoldSet {
		g.maxEnd = sent + cl.maxHold
	}
	g.extend(sent, a.TTL)
	if a.TTL < g.ttl/2 {
		g.renewAt = min(g.renewAt, sent+earlyRenewal)
		g.schedule()
	}
	l.init(g, sent)
	l.atLeast = cl.minimum()
	return l
}

// extend moves the deadline after a call that was sent at that time gave the grant that
// TTL, which may be less than before. The answer to an older call is no news.
func (g *grant) extend(sent, ttl time.Duration) {
	if sent < g.sent {
		return
	}
	g.sent = sent
	g.renewAt = sent + renewAfter(ttl)
	deadline := sent + ttl - margin(ttl)
	if g.maxEnd > 0 && g.maxEnd <= deadline {
		deadline = g.maxEnd
		g.renewAt = forever // it could not last any longer
	}
	if g.noRenew {
		g.renewAt = forever
	}
	g.deadline.Store(int64(deadline))
	g.schedule()
}

// schedule sets when the grant is due. While a renewal is under way that is its deadline.
func (g *grant) schedule() {
	g.due = time.Duration(g.deadline.Load())
	if !g.inFlight {
		g.due = min(g.due, g.renewAt)
	}
}

// expiry is when a lost grant is taken out of the store: when the store may have forgotten
// it by itself, and not earlier, to leave its holder the margin to wind down.
func (g *grant) expiry() time.Duration {
	return time.Duration(g.deadline.Load()) + margin(g.ttl)
}

// renewal is the request that extends the grant.
func (g *grant) renewal(tokens int) store.Renewal {
	return store.Renewal{Name: g.name, ID: g.id, TTL: g.ttl, Mode: g.mode, Tokens: tokens}
}
