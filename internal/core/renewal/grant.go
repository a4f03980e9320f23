package renewal

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const forever = time.Duration(math.MaxInt64)

// A Hold is told what happens to its grant, while no mutex of this package is locked.
type Hold interface {
	// Lost ends the hold. It must not wait for anything.
	Lost(Loss)
	// ReportLost reports the loss to the observer, if Lost ended the hold.
	ReportLost()
	// Renewed reports that the grant was extended, and what was left of it before.
	Renewed(Rest)
	// RenewFailed reports a renewal whose outcome is unknown.
	RenewFailed(err error)
}

// A Rest is what was left of a grant when the reply to its renewal arrived.
type Rest struct {
	Slack time.Duration // until the old deadline
	Term  time.Duration // from the last renewal to the old deadline
}

func (g *Grant) rest(now time.Duration) Rest {
	return Rest{g.Deadline() - now, g.Deadline() - g.sent}
}

// A Loss says why a grant was lost.
type Loss struct {
	Word   string // for metrics: "expired", "gone" or "max_hold"
	Reason string // for people
	Err    error  // of the last renewal; may be nil
}

// A Grant is one identity on one name. All times are on the client's clock.
type Grant struct {
	Name    string
	ID      store.ID
	Meta    string
	Mode    store.Mode // as granted, even after Downgrade
	Weight  int
	Limit   int
	TTL     time.Duration // as requested
	NoRenew bool          // it is never renewed

	deadline atomic.Int64 // a time.Duration

	// Guarded by the scheduler's mutex.
	hold       Hold          // the one that has the grant, or had it last
	sent       time.Duration // send time of the newest successful call; the deadline counts from it
	renewAt    time.Duration
	due        time.Duration // when the scheduler handles it next
	maxEnd     time.Duration // end of MaxHold; 0 if there is none
	lastErr    error         // of the last renewal
	index      int32         // in the heap; -1 if not in it
	downgraded bool          // to store.Shared
	inFlight   bool          // a renewal is in flight
	expired    bool          // lost, and waiting for its clean-up
	apart      bool          // its last renewal failed, and others in the same call did not
}

// Start sets the times of a new grant from the call that granted it: its send time and the
// granted TTL. MaxEnd is the end of MaxHold, or 0 if there is none. H is the first hold.
func (g *Grant) Start(h Hold, sent, granted, maxEnd time.Duration) {
	g.hold, g.maxEnd, g.index = h, maxEnd, -1
	g.extend(sent, granted)
	if granted < g.TTL/2 && g.renewAt != forever {
		g.renewAt = min(g.renewAt, sent+earlyRenewal)
		g.schedule()
	}
}

// Deadline returns when the grant ends for its holder unless it is renewed.
func (g *Grant) Deadline() time.Duration { return time.Duration(g.deadline.Load()) }

// HasMaxHold reports whether MaxHold bounds the grant.
func (g *Grant) HasMaxHold() bool { return g.maxEnd > 0 }

// Expiry returns when the store may have dropped the grant by itself. A lost grant is not removed
// from the store earlier, so that its holder has the margin to stop its work.
func (g *Grant) Expiry() time.Duration { return g.Deadline() + margin(g.TTL) }

// margin is how long before its expiry in the store a lease ends for its holder. It allows for
// clocks that run at different speeds and for the time that a timer and a cancellation take. A
// twentieth of the TTL covers both, and a second is enough for any TTL.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, time.Millisecond), time.Second)
}

// renewAfter returns how long after the last renewal a lease is renewed. It is late enough to be
// cheap, and early enough for several attempts before the deadline.
func renewAfter(ttl time.Duration) time.Duration { return ttl / 3 }

// renewTimeout bounds one renewal, so that several attempts fit before the deadline.
func renewTimeout(ttl time.Duration) time.Duration { return max(ttl/6, 10*time.Millisecond) }

// earlyRenewal is how soon a grant with much less than its TTL is renewed, unless it is released.
const earlyRenewal = 10 * time.Millisecond

// extend moves the deadline after a successful call that was sent at that time. The TTL that it
// granted may be shorter than before. The reply to an older call changes nothing.
func (g *Grant) extend(sent, ttl time.Duration) {
	if sent < g.sent {
		return
	}
	g.sent = sent
	g.renewAt = sent + renewAfter(ttl)
	deadline := sent + ttl - margin(ttl)
	if g.maxEnd > 0 && g.maxEnd <= deadline {
		deadline = g.maxEnd
		g.renewAt = forever // a renewal could not extend it beyond MaxHold
	}
	if g.NoRenew {
		g.renewAt = forever
	}
	g.deadline.Store(int64(deadline))
	g.schedule()
}

// schedule sets when the grant is due: at its deadline while a renewal is in flight.
func (g *Grant) schedule() {
	g.due = g.Deadline()
	if !g.inFlight {
		g.due = min(g.due, g.renewAt)
	}
}

func (g *Grant) request(tokens int) store.Renewal {
	return store.Renewal{Name: g.Name, ID: g.ID, TTL: g.TTL, Mode: g.mode(), Tokens: tokens}
}

func (g *Grant) mode() store.Mode {
	if g.downgraded {
		return store.Shared
	}
	return g.Mode
}

// live reports whether the grant is scheduled and was not lost.
func (g *Grant) live() bool { return g.index >= 0 && !g.expired }

func (g *Grant) expiryLoss() Loss {
	switch {
	case g.maxEnd > 0 && g.maxEnd <= g.Deadline():
		return Loss{Word: "max_hold", Reason: "MaxHold is over"}
	case g.NoRenew:
		return Loss{Word: "expired", Reason: "its TTL of " + g.TTL.String() + " is over and it was not renewed"}
	}
	return Loss{Word: "expired", Reason: "it could not be renewed in time", Err: g.lastErr}
}

// Gone is the loss of a grant that the store no longer has.
var Gone = Loss{Word: "gone", Reason: "the grant is gone: expired, forcibly released, or lost by the store"}
