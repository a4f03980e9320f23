// Package renewal renews the grants of a client, and ends those whose deadline has passed.
package renewal

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/core/lifetime"
	"github.com/holdfast-lock/holdfast/store"
)

// maxBatch is the maximum number of grants in one call. It is large enough to make the cost per
// grant small, and small enough that one slow call does not delay all grants.
const maxBatch = 256

// Bounds of the number of calls in flight. A store that hangs must not get all renewals of a client
// again and again, because it would have to execute them all before those that still count. If a call
// renews only some of its grants, the others are renewed by calls of their own, with a lower bound: if
// one part of a store does not answer, the grants of the other parts do not wait for it. If a call renews
// none of its grants, the whole store may hang, and the grants that end first must stay the first.
const minFlying, firstFlying, maxFlying, maxRetries = 2, 8, 64, 16

// slowCall is longer than a call takes unless many others are in front of it.
const slowCall = time.Second

// A Scheduler renews and expires all grants of a client, with one heap and one timer.
//
// A hung call delays no loss: it has its own goroutine, and its grants are due at their deadlines.
type Scheduler struct {
	store *bounded.Store
	life  *lifetime.Lifetime
	now   func() time.Duration
	clean func(context.Context, []*Grant)

	mu     sync.Mutex
	heap   dueHeap
	timer  *time.Timer
	armed  time.Duration // when the timer fires; forever if it does not
	closed bool

	first, again flight // the calls, and those for grants that are apart
}

// A flight counts calls in flight. Its limit grows while it is reached and calls are fast. A server that
// is slow gets fewer calls, so that the other calls of this client need not wait for them. If one part of
// a store does not answer, every call takes long, and only more calls help the other parts.
type flight struct {
	calls, limit, most int
	ready              []*Grant // to renew when fewer calls are in flight, by deadline; marked as in flight
}

// returned records that a call has returned, and whether all, some or none of its renewals were answered.
func (f *flight) returned(all, some bool, took time.Duration) {
	reached := f.calls >= f.limit
	f.calls--
	switch {
	case some && !all:
		f.limit = f.most
	case !all || took > slowCall:
		f.limit = max(f.limit/2, minFlying)
	case reached:
		f.limit = min(f.limit+1, f.most)
	}
}

// Init sets up a scheduler. Now is the client's clock. Clean removes expired grants from the store,
// which may still have them: it may count no TTLs but have sessions, or MaxHold may be over.
func (s *Scheduler) Init(st *bounded.Store, life *lifetime.Lifetime, now func() time.Duration, clean func(context.Context, []*Grant)) {
	s.store, s.life, s.now, s.clean = st, life, now, clean
	s.first, s.again = flight{limit: firstFlying, most: maxFlying}, flight{limit: firstFlying, most: maxRetries}
}

// Add schedules a new grant. It returns false after Close.
func (s *Scheduler) Add(g *Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.heap.push(g)
	s.arm()
	return true
}

// Remove removes a grant that is about to be released from the schedule, unless it has expired.
func (s *Scheduler) Remove(g *Grant) {
	s.mu.Lock()
	if g.live() {
		s.heap.remove(g)
	}
	s.mu.Unlock()
}

// Withdraw removes a grant from the schedule if the caller ended its lease, or if it has expired.
// It reports whether it did. If so, the caller must release the grant.
func (s *Scheduler) Withdraw(g *Grant, ended bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.index < 0 || !ended && !g.expired {
		return false
	}
	s.heap.remove(g)
	return true
}

// All returns the scheduled grants.
func (s *Scheduler) All() []*Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heap)
}

// Close rejects new grants and stops the timer.
func (s *Scheduler) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// Mode returns the mode of a grant.
func (s *Scheduler) Mode(g *Grant) store.Mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.mode()
}

// Downgrade makes the next renewal ask for the shared mode.
func (s *Scheduler) Downgrade(g *Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.downgraded = true
}

// Hold returns the hold that has the grant, or had it last.
func (s *Scheduler) Hold(g *Grant) Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.hold
}

// HandOver gives the grant to the next hold, unless the grant is lost or the client closed.
func (s *Scheduler) HandOver(g *Grant, to Hold) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !g.live() {
		return false
	}
	g.hold = to
	return true
}

// arm sets the timer for the grant that is due first. A timer that fires too early is not reset,
// because resetting it for every lock and unlock would cost more.
func (s *Scheduler) arm() {
	if len(s.heap) == 0 || s.closed {
		return
	}
	due := s.heap[0].due
	switch {
	case s.timer == nil:
		s.timer = time.AfterFunc(due-s.now(), s.fire)
	case due < s.armed:
		s.timer.Reset(due - s.now())
	default:
		return
	}
	s.armed = due
}

// fire is called by the timer. It renews grants that are due and ends grants that have expired.
func (s *Scheduler) fire() {
	open := s.life.Enter() // if it returns false, Close releases all grants
	if open {
		defer s.life.Exit()
	}
	due, expired, forgotten := s.collect(open)
	for i := range expired {
		expired[i].grant.hold.Lost(expired[i].loss) // a lost grant keeps its hold
	}
	// Report losses last, so that no renewal waits for an observer.
	defer func() {
		for i := range expired {
			expired[i].grant.hold.ReportLost()
		}
	}()
	if !open {
		return
	}
	if len(forgotten) > 0 {
		s.life.Go(func(ctx context.Context) { s.clean(ctx, forgotten) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range due {
		to := &s.first
		if g.apart {
			to = &s.again
		}
		to.ready = append(to.ready, g)
	}
	if len(due) > 0 {
		for _, f := range []*flight{&s.first, &s.again} {
			slices.SortFunc(f.ready, func(a, b *Grant) int { return cmp.Compare(a.Deadline(), b.Deadline()) })
		}
	}
	s.send()
}

// send renews grants that are ready. The caller holds the mutex, and has entered.
func (s *Scheduler) send() {
	for _, f := range []*flight{&s.first, &s.again} {
		for f.calls < f.limit {
			batch := f.next()
			if len(batch) == 0 {
				break
			}
			f.calls++
			s.life.Go(func(ctx context.Context) { s.renewBatch(ctx, batch, f) })
		}
	}
}

// next removes the next batch from the grants that are ready, those with the earliest deadline first.
// All grants of a batch have the same TTL, because a short TTL needs a short timeout. After a hang all
// grants of a client may be ready, so next looks at no more of them than it needs.
func (f *flight) next() (batch []*Grant) {
	seen, others := 0, 0
	for ; seen < len(f.ready) && len(batch) < maxBatch; seen++ {
		switch g := f.ready[seen]; {
		case !g.live():
		case len(batch) == 0 || g.TTL == batch[0].TTL:
			batch = append(batch, g)
		default:
			f.ready[others] = g
			others++
		}
	}
	copy(f.ready[seen-others:], f.ready[:others])
	clear(f.ready[:seen-others])
	f.ready = f.ready[seen-others:]
	return batch
}

type lostGrant struct {
	grant *Grant
	loss  Loss
}

// collect returns the grants that are due: grants to renew, grants whose deadline has passed, and
// expired grants that the store may have dropped by now. Only the last ones leave the heap.
func (s *Scheduler) collect(open bool) (due []*Grant, expired []lostGrant, forgotten []*Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.armed = forever
	defer s.arm()
	for len(s.heap) > 0 {
		g := s.heap[0]
		switch {
		case g.expired && g.due <= now && !open:
			g.due = forever
			s.heap.fix(g)
		case g.expired && g.due <= now:
			s.heap.remove(g)
			forgotten = append(forgotten, g)
		case g.expired:
			return due, expired, forgotten
		case g.Deadline() <= now:
			s.expire(g)
			expired = append(expired, lostGrant{g, g.expiryLoss()})
		case !g.inFlight && g.renewAt <= now+g.TTL/20: // renew grants early that are due soon, so that there are fewer, larger calls
			g.inFlight = true
			g.schedule()
			s.heap.fix(g)
			due = append(due, g)
		default:
			return due, expired, forgotten
		}
	}
	return due, expired, forgotten
}

// expire marks a grant as past its deadline. It stays scheduled until its clean-up in the store.
func (s *Scheduler) expire(g *Grant) {
	g.expired = true
	g.due = g.Expiry()
	s.heap.fix(g)
}

// Expire ends a grant whose deadline has passed, unless it has ended. It returns the loss.
func (s *Scheduler) Expire(g *Grant) Loss {
	s.mu.Lock()
	first := g.live()
	if first {
		s.expire(g)
		s.arm()
	}
	loss := g.expiryLoss()
	s.mu.Unlock()
	if first {
		g.hold.Lost(loss)
		g.hold.ReportLost()
	}
	return loss
}

// CleanUp releases an expired grant at the store now: its holder has ended and needs no margin.
func (s *Scheduler) CleanUp(g *Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.index >= 0 && g.expired {
		g.due = s.now()
		s.heap.fix(g)
		s.arm()
	}
}

// renewBatch renews grants of one TTL in one call to the store.
func (s *Scheduler) renewBatch(ctx context.Context, batch []*Grant, in *flight) {
	requests := make([]store.Renewal, len(batch))
	s.mu.Lock()
	sent := s.now()
	for i, g := range batch {
		requests[i] = g.request(0)
	}
	s.mu.Unlock()
	outcomes := s.store.Renew(ctx, renewTimeout(batch[0].TTL), requests)

	settled := make([]reply, 0, len(batch))
	s.mu.Lock()
	now := s.now()
	unknown := func(o store.Renewed) bool { return o.Status == store.Unknown }
	all := !slices.ContainsFunc(outcomes, unknown)
	some := all || slices.ContainsFunc(outcomes, func(o store.Renewed) bool { return !unknown(o) })
	in.returned(all, some, now-sent)
	for i, g := range batch {
		g.inFlight = false
		settled = s.settle(settled, reply{g, g.rest(now), &outcomes[i]}, sent, now)
		if outcomes[i].Status == store.Unknown {
			// Retry at once if the call timed out, otherwise a little later.
			g.renewAt = max(now, sent+g.TTL/20)
			g.apart = g.apart || some
		}
		if g.live() {
			g.schedule()
			s.heap.fix(g)
		}
	}
	s.send()
	s.arm()
	s.mu.Unlock()
	s.report(settled)
}

// A reply is the outcome of the renewal of one grant.
type reply struct {
	grant *Grant
	rest  Rest // before it
	out   *store.Renewed
}

// settle applies a reply, and adds it to those to report. It does neither if the lease has ended: a grant
// whose deadline has passed stays lost, whatever the outcome.
func (s *Scheduler) settle(settled []reply, r reply, sent, now time.Duration) []reply {
	g := r.grant
	if !g.live() || r.out.Status == store.Extended && now >= g.Deadline() {
		return settled
	}
	switch r.out.Status {
	case store.Gone:
		s.heap.remove(g)
	case store.Unknown:
		g.lastErr = r.out.Err
	case store.Extended:
		g.extend(sent, r.out.TTL)
		g.lastErr, g.apart = nil, false
		s.heap.fix(g)
	}
	return append(settled, r)
}

// report tells the holds about replies. Losses come first, because the observer may be slow.
func (s *Scheduler) report(settled []reply) {
	for _, r := range settled {
		if r.out.Status == store.Gone {
			r.grant.hold.Lost(Gone)
		}
	}
	for _, r := range settled {
		switch r.out.Status {
		case store.Gone:
			r.grant.hold.ReportLost()
		case store.Extended:
			s.Hold(r.grant).Renewed(r.rest)
		case store.Unknown:
			s.Hold(r.grant).RenewFailed(r.out.Err)
		}
	}
}

// RenewNow renews one grant at once, and asks for tokens if that is not 0.
func (s *Scheduler) RenewNow(ctx context.Context, g *Grant, tokens int) store.Renewed {
	s.mu.Lock()
	sent := s.now()
	request := g.request(tokens)
	s.mu.Unlock()
	out := s.store.Renew(ctx, g.Deadline()-sent, []store.Renewal{request})[0]
	if out.Status == store.Unknown && ctx.Err() != nil {
		return out // the caller did not wait for the store
	}
	s.mu.Lock()
	now := s.now()
	settled := s.settle(nil, reply{g, g.rest(now), &out}, sent, now)
	s.arm()
	s.mu.Unlock()
	s.report(settled)
	return out
}
