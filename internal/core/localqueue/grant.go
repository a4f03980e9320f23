package localqueue

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// A Holder has a grant and the lease on it.
type Holder interface {
	renewal.Holder

	// HandOver makes the next lease on the grant, for a waiting call. It is called with a
	// mutex of the queue held.
	HandOver(call *Call, token int64, now time.Duration)

	// Refusal returns the error of a call that does not wait for the grant.
	Refusal(now time.Duration) error
}

// A Grant is a grant of the store as the queue sees it.
type Grant struct {
	renewal.Grant
	Meta string

	// State of hand-over for an exclusive grant, guarded by the mutex of the shard.
	shard      *shard        // of the name
	name       *name         // nil once the grant is released, lost or no longer exclusive
	next       int64         // token of the next hand-over
	slice      time.Duration // when this slice began
	tokens     int32         // how many tokens are left for hand-overs without asking the store
	othersWait bool          // other processes wait
	lost       bool          // it must no longer be handed over
	short      bool          // granted for much less than the requested TTL, and renewed soon

	Exclusive bool // when it was granted
}

// Init sets up a grant from the store's answer to a call. Sent is the send time of the call. Init
// returns the first token of the grant.
func (g *Grant) Init(a *store.Answer, sent time.Duration) int64 {
	g.next, g.tokens, g.othersWait, g.slice = a.Token, int32(a.Tokens), a.Waiters > 0, sent
	g.short = a.TTL <= g.TTL/2
	return g.takeToken()
}

func (g *Grant) takeToken() int64 {
	token := g.next
	g.next++
	g.tokens--
	return token
}

func (g *Grant) holder() Holder { return g.Holder.(Holder) }

// Release hands a grant over to the next call, or detaches it from its name. If handed is false,
// the caller must release the grant to the store and then end the turn, if it is not zero.
func (q *Queue) Release(ctx context.Context, g *Grant, mayHandOver bool) (t Turn, handed bool) {
	if !g.Exclusive {
		return Turn{}, false
	}
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	n := g.name
	if n == nil { // downgraded, or just lost
		return Turn{}, false
	}
	if mayHandOver && q.handOver(ctx, n, g) {
		return Turn{}, true
	}
	n.grant, g.name = nil, nil
	n.busy = true
	return Turn{q, n}, false
}

// handOver hands the grant over to the first waiter, unless the grant does not suit it or it is
// another process's turn. It unlocks the mutex of the shard while it asks the store.
func (q *Queue) handOver(ctx context.Context, n *name, g *Grant) bool {
	asked := false
	for n.head != nil && !g.lost {
		w, now := n.head, q.config.Now()
		left := g.Deadline() - now
		if !q.serves(g, &w.call) || left <= 0 {
			return false
		}
		fresh := left > g.TTL/2 || g.short
		if g.tokens > 0 && (asked || fresh && now-g.slice < q.config.Slice) {
			g.holder().HandOver(&w.call, g.takeToken(), now)
			w.signal(g, nil)
			return true
		}
		if g.othersWait || asked {
			return false // the slice is over, so it is the turn of another process
		}
		if !q.config.Ordered {
			return false // the store cannot tell whether another process waits
		}
		// Ask the store whether another process waits now, and ask for more tokens.
		n.busy = true
		n.shard.mu.Unlock()
		out := q.config.Renewals.RenewNow(ctx, &g.Grant, q.config.Limit)
		n.shard.mu.Lock()
		n.busy = false
		if out.Status != store.Extended || out.Tokens < 1 {
			return false // another process waits, or there is an error that the release will find too
		}
		g.next, g.tokens, g.slice, g.short = out.Token, int32(out.Tokens), q.config.Now(), false
		asked = true
	}
	return false
}

// serves reports whether a waiting call can use the grant unchanged.
func (q *Queue) serves(g *Grant, call *Call) bool {
	return q.takes(call, g.TTL, g.Meta) && !g.NoRenew && !g.HasMaxHold()
}

// takes reports whether a call can use an exclusive grant with this TTL and Meta. A call that asks
// for something else must go to the store, which records the TTL and Meta of each grant.
func (q *Queue) takes(call *Call, ttl time.Duration, meta string) bool {
	return q.config.Limit > 0 && call.Request.Mode == store.Exclusive &&
		call.Request.TTL == ttl && call.Request.Meta == meta && !call.Own
}

// MarkLost keeps a lost grant from being handed over.
func (q *Queue) MarkLost(g *Grant) {
	if !g.Exclusive {
		return
	}
	g.shard.mu.Lock()
	g.lost = true
	g.shard.mu.Unlock()
}

// Drop detaches a grant that is lost or no longer exclusive from its name, so that the waiting
// calls go to the store.
func (q *Queue) Drop(g *Grant) {
	if !g.Exclusive {
		return
	}
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	if n := g.name; n != nil {
		n.grant, g.name = nil, nil
		if !n.busy { // otherwise the call that has the turn wakes the next call
			n.wakeNext()
		}
	}
}
