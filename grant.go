package holdfast

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// A grant is what the store gave this client: one identity on one name. If it is handed over,
// leases hold it one after the other. Reentrant leases share it at the same time.
type grant struct {
	localqueue.Grant
	c      *Client
	lease  atomic.Pointer[lease] // the lease that holds the grant, or held it last
	weight int
}

// grantOf returns the grant that contains g.
func grantOf(g *localqueue.Grant) *grant { return g.Holder.(*grant) }

// newLease makes a grant from an answer of the store, and its first lease, in one allocation.
func (c *Client) newLease(cl *call, id store.ID, sent time.Duration, a *store.Answer) *lease {
	both := new(struct {
		grant grant
		lease lease
	})
	g, l := &both.grant, &both.lease
	req := &cl.Request
	g.c, g.weight, g.Holder = c, req.Weight, g
	g.ID, g.Name, g.Meta, g.TTL, g.NoRenew, g.Exclusive = id, req.Name, req.Meta, req.TTL, cl.noRenew, req.Mode == store.Exclusive
	var maxEnd time.Duration
	if cl.maxHoldSet {
		maxEnd = c.now() + cl.maxHold // not from sent: a limit that is shorter than the reply takes would leave no lease
	}
	g.Start(req.Mode, sent, a.TTL, maxEnd)
	now := sent
	if cl.MinHold > 0 {
		now = c.now() // the store granted it after sent, so counting from sent would make the minimum hold too short
	}
	l.init(g, g.Init(a, sent), sent, minHoldEnd(now, cl.MinHold))
	return l
}

// HandOver makes the next lease on the grant.
func (g *grant) HandOver(call *localqueue.Call, token int64, now time.Duration) {
	new(lease).init(g, token, now, minHoldEnd(now, call.MinHold))
}

// Refusal returns the error of a call that does not wait for the grant.
func (g *grant) Refusal(now time.Duration) error {
	l := g.lease.Load()
	return &HeldError{Name: l.name(), Holders: []Holder{{
		ID:     g.ID,
		Owner:  g.c.set.owner,
		Meta:   g.Meta,
		Mode:   store.Exclusive,
		Weight: 1,
		Token:  l.token,
		Age:    now - l.since,
		Left:   max(0, g.Deadline()-now),
	}}}
}

// Lost ends the lease on the grant before any other call can have the name.
func (g *grant) Lost(loss renewal.Loss) {
	g.c.queue.MarkLost(&g.Grant)
	l := g.lease.Load()
	l.lost = l.finish(l.named(&lostError{loss}))
	g.c.queue.Drop(&g.Grant)
}

// ReportLost tells the observer about a loss.
func (g *grant) ReportLost() {
	if l := g.lease.Load(); l.lost && g.c.observed() {
		l.reportEnd(l.lostEvent())
	}
}

// Renewed tells the observer about a renewal.
func (g *grant) Renewed(ttl time.Duration, rest renewal.Rest) {
	if g.c.observed() {
		g.c.warnShortTTL(g.TTL, ttl)
		e := g.lease.Load().event(EventRenewed)
		e.Slack, e.Term, e.Left = rest.Slack, rest.Term, max(0, g.Deadline()-g.c.now())
		g.c.emit(e)
	}
}

// RenewFailed tells the observer about a renewal that failed.
func (g *grant) RenewFailed(err error) {
	if g.c.observed() {
		e := g.lease.Load().event(EventError)
		e.Err = unavailable("renewal", err)
		g.c.emit(e)
	}
}
