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
	if !c.caps.Features.Has(store.FeatureQueue) && s.crowd.Load() > 0 {
		// Nobody is woken by this store: leave others the time to find the name free.
		time.AfterFunc(c.set.handoverSlice/5, func() { c.next(s) })
		return err
	}
	c.next(s)
	return err
}

// handOver gives the grant to the first waiter of the slot, if that is due to it. It is
// called with the shard's mutex held, and lets go of it while it asks the store.
func (c *Client) handOver(ctx context.Context, s *slot, g *grant) bool {
	asked := false
	for s.first != nil && g.lost == nil {
		w, now := s.first, c.now()
		left := time.Duration(g.deadline.Load()) - now
		if !c.fits(g, &w.call) || left <= 0 {
			return false
		}
		if g.tokens > 0 && (asked || left > g.granted/2 && now-g.slice < c.set.handoverSlice) {
			lease := new(Lease)
			lease.init(g, now)
			lease.atLeast = w.call.minimum()
			s.signal(w, lease, nil)
			return true
		}
		if g.crowded || asked {
			return false // the slice is over, it is another process' turn
		}
		if !c.caps.Features.Has(store.FeatureQueue) {
			return false // it cannot tell whether another process waits
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
		asked = true
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
