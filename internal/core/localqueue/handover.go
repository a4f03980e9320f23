package localqueue

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// A handover is the state of an exclusive grant that passes from call to call.
type handover struct {
	token      int64         // of the call that has the grant
	since      time.Duration // when that call got it
	next       int64         // token of the next hand-over
	tokens     int           // how many tokens are left for hand-overs without asking the store
	slice      time.Duration // when this slice began
	othersWait bool          // other processes wait
	short      bool          // granted for much less than the requested TTL, and renewed soon
}

// Release hands a grant over to the next call, or detaches it from its name. If handed is false,
// the caller must release the grant to the store and then end the turn, if it is not zero.
func (q *Queue) Release(ctx context.Context, g *renewal.Grant, mayHandOver bool) (t Turn, handed bool) {
	if g.Mode != store.Exclusive {
		return Turn{}, false
	}
	sh := q.shard(g.Name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.names[g.Name]
	if n == nil || n.grant != g { // downgraded, or just lost
		return Turn{}, false
	}
	if mayHandOver && q.handOver(ctx, n, g) {
		return Turn{}, true
	}
	n.grant, n.busy = nil, true
	return Turn{q, n}, false
}

// handOver hands the grant over to the first waiter, unless the grant does not suit it or it is
// another process's turn. It unlocks the mutex of the shard while it asks the store.
func (q *Queue) handOver(ctx context.Context, n *name, g *renewal.Grant) bool {
	asked := false
	for n.head != nil && n.grant == g {
		w, now := n.head, q.config.Now()
		left := g.Deadline() - now
		if !q.takes(&w.call, g.TTL, g.Meta) || g.NoRenew || g.HasMaxHold() || left <= 0 {
			return false
		}
		fresh := left > g.TTL/2 || n.short
		if n.tokens > 0 && (asked || fresh && now-n.slice < q.config.Slice) {
			n.token, n.since = n.next, now
			n.next++
			n.tokens--
			n.signal(w, Outcome{Grant: g, Token: n.token, Since: now})
			return true
		}
		if n.othersWait || asked {
			return false // the slice is over, so it is the turn of another process
		}
		if !q.config.Ordered {
			return false // the store cannot tell whether another process waits
		}
		// Ask the store whether another process waits now, and ask for more tokens.
		n.busy = true
		n.shard.mu.Unlock()
		out := q.config.Renewals.RenewNow(ctx, g, q.config.Limit)
		n.shard.mu.Lock()
		n.busy = false
		if out.Status != store.Extended || out.Tokens < 1 {
			return false // another process waits, or there is an error that the release will find too
		}
		n.next, n.tokens, n.slice, n.short = out.Token, out.Tokens, q.config.Now(), false
		asked = true
	}
	return false
}

// takes reports whether a call can use an exclusive grant with this TTL and Meta. A call that asks
// for something else must go to the store, which records the TTL and Meta of each grant.
func (q *Queue) takes(call *Call, ttl time.Duration, meta string) bool {
	return q.config.Limit > 0 && call.Request.Mode == store.Exclusive &&
		call.Request.TTL == ttl && call.Request.Meta == meta && !call.Own
}

// Drop detaches a grant that is lost or shared by now, so that the waiting calls go to the store.
func (q *Queue) Drop(g *renewal.Grant) {
	sh := q.shard(g.Name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := sh.names[g.Name]
	if n == nil || n.grant != g {
		return
	}
	n.grant = nil
	if !n.busy { // otherwise the call that has the turn wakes the next call
		n.wakeNext()
	}
}
