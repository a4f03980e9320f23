package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// A hold is the time during which one acquiring call has a grant: from the answer of the store, or
// from the hand-over, until the last of its leases is unlocked or the grant is lost.
type hold struct {
	c     *Client
	g     *renewal.Grant
	token int64
	since time.Duration // send time of the call that the store granted, or time of the hand-over
	first part          // of the acquiring call

	mu       sync.Mutex
	parts    int32         // how many were not unlocked
	ended    bool          // all parts were unlocked, or the grant was lost or the client closed
	reported bool          // the observer knows that it was acquired
	end      EventKind     // how it ended, if the observer must hear of it later; 0 if not
	lost     bool          // ended by Lost, the only function that uses it without the mutex
	openAt   time.Duration // when MinHold is over; 0 without MinHold
	others   *part         // of Reentrant calls that were not unlocked, linked by next
	err      error         // why it ended
}

// A part is the state behind one Lease. It is separate so that a Lease that the program dropped
// can be garbage collected while its hold is still renewed (see lease).
type part struct {
	h      *hold
	inline Lease // the Lease, if leaks are not reported

	// Guarded by the mutex of the hold.
	released bool // it was unlocked
	next     *part
	contexts map[contextKey]contextEnd
}

// newGrant makes a grant from an answer of the store, and its first hold, in one allocation.
func (c *Client) newGrant(cl *call, sent time.Duration, a *store.Answer) *hold {
	both := new(struct {
		grant renewal.Grant
		hold  hold
	})
	g, h, req := &both.grant, &both.hold, &cl.Request
	g.ID, g.Name, g.Meta, g.TTL, g.NoRenew = req.ID, req.Name, req.Meta, req.TTL, cl.noRenew
	g.Mode, g.Weight, g.Limit = req.Mode, req.Weight, req.Limit
	var maxEnd time.Duration
	if cl.maxHold > 0 {
		maxEnd = c.now() + cl.maxHold // not from sent: a limit that is shorter than the reply takes would leave no lease
	}
	g.Start(h, sent, a.TTL, maxEnd)
	h.init(c, cl, g, a.Token, sent)
	return h
}

func (h *hold) init(c *Client, cl *call, g *renewal.Grant, token int64, since time.Duration) {
	h.c, h.g, h.token, h.since, h.parts = c, g, token, since, 1
	h.first.h = h
	if cl.minHold > 0 && !cl.inSet {
		h.openAt = c.now() + cl.minHold // not from since: the store grants a call after it was sent
	}
}

func (h *hold) name() string { return h.g.Name[len(h.c.set.prefix):] }

func (h *hold) mode() store.Mode { return h.c.renewals.Mode(h.g) }

// lease returns the Lease for the caller. If the client has an observer or a logger, a Lease that
// is garbage collected although it was not unlocked is reported to them.
func (p *part) lease() *Lease {
	if p.h.g.NoRenew || !p.h.c.observed() {
		p.inline.p = p
		return &p.inline
	}
	l := &Lease{p}
	runtime.AddCleanup(l, (*part).reportLeak, p)
	return l
}

func (p *part) reportLeak() {
	if p.endedBy() == nil {
		p.h.c.emit(p.h.event(EventLeaked))
	}
}

func (p *part) endedBy() error {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	return p.endedByLocked()
}

func (p *part) endedByLocked() error {
	if err := p.h.err; err != nil {
		return err
	}
	if p.released {
		return ErrNotHeld
	}
	return nil
}

func (p *part) err() error {
	err, h := p.endedBy(), p.h
	if err == nil && h.c.now() >= h.g.Deadline() {
		return h.named(&lostError{h.c.renewals.Expire(h.g)})
	}
	return err
}

// again makes one more part of a hold, for a call whose context already holds the name.
func (h *hold) again(cl *call) (*part, error) {
	h.mu.Lock() // also keeps Downgrade from changing the mode
	defer h.mu.Unlock()
	mode := h.mode()
	mixed := store.Mixes(h.g.Name, cl.Request.Mode, cl.Request.Limit, mode, h.g.Limit)
	covers := mode == store.Exclusive || mode == cl.Request.Mode && cl.Request.Weight <= h.g.Weight
	switch {
	case !cl.reentrant:
		return nil, fail(cl.op, cl.name, fmt.Errorf("%w: the context holds it already, with token %d: pass the lease on, or use Reentrant", ErrWouldDeadlock, h.token))
	case !covers:
		return nil, fail(cl.op, cl.name, fmt.Errorf("%w: the context holds it already as %s, which does not cover %s: unlock it first", ErrWouldDeadlock, describe(mode, h.g.Weight), describe(cl.Request.Mode, cl.Request.Weight)))
	case mixed != nil:
		return nil, fail(cl.op, cl.name, mixed)
	case h.ended:
		return nil, fail(cl.op, cl.name, h.err)
	}
	h.parts++
	h.others = &part{h: h, next: h.others}
	return h.others, nil
}

func describe(mode store.Mode, weight int) string {
	if mode == store.Permits {
		return fmt.Sprintf("%d permits", weight)
	}
	return mode.String()
}

// named adds the name of the lock to the reason why a hold ended.
func (h *hold) named(why error) error { return fail("lease", h.name(), why) }

// unlock implements Unlock. Keep says how the name stays closed after the last lease of the hold; zero
// means for the rest of MinHold. If all is set, unlock also ends the other leases.
func (l *Lease) unlock(ctx context.Context, keep store.Keep, all bool) error {
	const op = "unlock"
	defer runtime.KeepAlive(l) // it is not a leak before it is marked as unlocked
	p, h, c := l.p, l.p.h, l.p.h.c
	if !c.life.Enter() { // Close releases it
		return fail(op, h.name(), cmp.Or(p.err(), ErrClosed))
	}
	defer c.life.Exit()
	h.mu.Lock()
	if p.released || h.ended {
		err, last := h.err, false
		if p.released {
			err = ErrNotHeld
		} else {
			h.parts--
			last = h.parts == 0 || all
		}
		p.released = true
		h.mu.Unlock()
		if last && errors.Is(err, ErrLost) { // otherwise another hold may have the grant
			c.renewals.CleanUp(h.g)
		}
		return fail(op, h.name(), err)
	}
	p.released = true
	// The contexts of the work must end before any other client can have the lock. So the
	// contexts of this part end before it is subtracted from the parts.
	if h.parts > 1 && !all {
		var ending ending
		ending.add(p)
		h.unlinkLocked(p)
		h.mu.Unlock()
		ending.signal(ErrNotHeld)
		h.mu.Lock()
	}
	h.parts--
	if h.parts > 0 && !all || h.ended {
		h.mu.Unlock()
		return nil
	}
	ending := h.endLocked(ErrNotHeld)
	if keep.State == store.Held && h.openAt > 0 && c.now() < h.openAt {
		keep.State = store.Cooling // for the time that is left at each attempt
	}
	h.mu.Unlock()
	ending.signal(ErrNotHeld)
	err := c.releaseGrant(detach(ctx), h.g, keep)
	if c.observed() {
		e := h.event(EventReleased)
		if errors.Is(err, ErrLost) {
			e.Kind, e.Err, e.Reason = EventLost, err, renewal.Gone.Word
		}
		h.reportEnd(e)
	}
	return failIf(op, h.name(), err)
}

// unlinkLocked removes a part, so that a long hold does not collect all short ones.
func (h *hold) unlinkLocked(p *part) {
	for at := &h.others; *at != nil; at = &(*at).next {
		if *at == p {
			*at = p.next
			return
		}
	}
}

// finish ends a hold: it closes Done and cancels the contexts. It reports whether it was the first.
func (h *hold) finish(why error) bool {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return false
	}
	ending := h.endLocked(why)
	h.mu.Unlock()
	ending.signal(why)
	return true
}

func (h *hold) endLocked(why error) ending {
	var e ending
	e.add(&h.first)
	for p := h.others; p != nil; p = p.next {
		e.add(p)
	}
	h.ended, h.err, h.others = true, why, nil
	return e
}

// An ending holds the contexts to cancel, without the mutex, when leases end.
type ending []map[contextKey]contextEnd

func (e *ending) add(p *part) {
	if p.contexts != nil {
		*e = append(*e, p.contexts)
		p.contexts = nil
	}
}

func (e ending) signal(why error) {
	for _, last := range []bool{false, true} { // Done last, because a goroutine that waits for it may check its contexts
		for _, contexts := range e {
			for key, end := range contexts {
				if key.last == last {
					end.cancel(why)
				}
			}
		}
	}
}

// setMinHold sets the minimum hold, which begins now. A Reentrant call does not change it.
func (p *part) setMinHold(d time.Duration) {
	h := p.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if p == &h.first {
		h.openAt = h.c.now() + d
	}
}

// rest returns the Keep that closes the name for the rest of MinHold.
func (h *hold) rest() store.Keep {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rest := h.openAt - h.c.now(); rest > 0 {
		return store.Keep{State: store.Cooling, For: rest}
	}
	return store.Keep{}
}

// downgrade makes the hold shared, even if the store call fails: the store may have executed it.
func (p *part) downgrade() error {
	h := p.h
	h.mu.Lock() // keeps the grant from being handed over at the same moment
	defer h.mu.Unlock()
	if err := p.endedByLocked(); err != nil {
		return err
	}
	if h.parts > 1 {
		return fmt.Errorf("%w: another lease shares the grant (Reentrant): unlock that first", ErrInvalid)
	}
	h.c.queue.Drop(h.g)
	h.c.renewals.Downgrade(h.g)
	return nil
}

// Lost ends the hold before any other call can have the name.
func (h *hold) Lost(loss renewal.Loss) {
	h.lost = h.finish(h.named(&lostError{loss}))
	h.c.queue.Drop(h.g)
}

// ReportLost tells the observer about a loss.
func (h *hold) ReportLost() {
	if h.lost && h.c.observed() {
		h.reportEnd(h.lostEvent())
	}
}

// Renewed tells the observer about a renewal.
func (h *hold) Renewed(rest renewal.Rest) {
	if h.c.observed() {
		e := h.event(EventRenewed)
		e.Slack, e.Term, e.Left = rest.Slack, rest.Term, max(0, h.g.Deadline()-h.c.now())
		h.c.emit(e)
	}
}

// RenewFailed tells the observer about a renewal that failed.
func (h *hold) RenewFailed(err error) {
	if h.c.observed() {
		e := h.event(EventError)
		e.Err = unavailable("renewal", err)
		h.c.emit(e)
	}
}
