package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// giveUp passes on the grant of an ended lease: to the next goroutine in line, or back to
// the store.
func (c *Client) giveUp(ctx context.Context, l *Lease, keep store.Keep) error {
	g := l.g
	if !g.exclusive {
		c.renewals.remove(g)
		return c.release(ctx, g, keep)
	}
	sh := g.shard
	sh.mu.Lock()
	s := g.slot
	if s == nil { // stepped down, or lost in this moment
		sh.mu.Unlock()
		c.renewals.remove(g)
		return c.release(ctx, g, keep)
	}
	if keep == (store.Keep{}) && c.handOver(ctx, s, g) {
		sh.mu.Unlock()
		return nil
	}
	s.grant, g.slot = nil, nil
	s.busy = true
	sh.mu.Unlock()
	c.renewals.remove(g)
	err := c.release(ctx, g, keep)
	sh.mu.Lock()
	s.busy = false
	s.pass()
	sh.mu.Unlock()
	return err
}

// handOver gives the grant to the first waiter of the slot, if that is due to it. It is
// called with the shard's mutex held, and lets go of it while it asks the store.
func (c *Client) handOver(ctx context.Context, s *slot, g *grant) bool {
	for s.first != nil && g.lost == nil {
		w, now := s.first, c.now()
		left := time.Duration(g.deadline.Load()) - now
		if !c.fits(g, &w.call) || left <= 0 {
			return false
		}
		if left > g.ttl/2 && g.tokens > 0 && now-g.slice < c.set.handoverSlice {
			lease := new(Lease)
			lease.init(g, now)
			lease.atLeast = w.call.atLeast
			s.signal(w, lease, nil)
			return true
		}
		if g.crowded {
			return false // the slice is over, it is another process' turn
		}
		// Ask whether another process waits by now, and for more tokens.
		s.busy = true
		s.shard.mu.Unlock()
		out, err := c.renewNow(ctx, g, c.set.handoverLimit)
		s.shard.mu.Lock()
		s.busy = false
		if err != nil || out.Tokens < 1 {
			return false // another process waits; and release is better at retrying
		}
		g.next, g.tokens, g.slice = out.Token, int32(out.Tokens), c.now()
	}
	return false
}

// fits reports whether the grant can serve a waiting call as it is. Calls that ask for
// something else go to the store: it keeps what was asked for.
func (c *Client) fits(g *grant, cl *call) bool {
	return c.set.handoverLimit > 0 && cl.req.Mode == store.Exclusive &&
		cl.req.TTL == g.ttl && cl.req.Meta == g.meta &&
		!cl.noRenew && !g.noRenew &&
		!cl.maxHoldSet && g.maxEnd == 0
}

// unslot takes a grant that is lost or no longer exclusive from its slot, which sends the
// waiters there to the store.
func (c *Client) unslot(g *grant) {
	if !g.exclusive {
		return
	}
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	if s := g.slot; s != nil {
		s.grant, g.slot = nil, nil
		if !s.busy { // else whoever made it busy passes it on
			s.pass()
		}
	}
}
