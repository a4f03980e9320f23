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

// A Lease is a held lock. It renews itself until it is unlocked, lost, or MaxHold is over. Its
// methods may be called from many goroutines. The lock belongs to the Lease and not to a
// goroutine, so a Lease can be passed on.
//
// A lease ends for its holder before the store can give the lock to anyone else: Done is then
// closed, and contexts made with Context are cancelled with a cause that matches ErrLost. A
// holder that was paused (a stopped process, a suspended machine) can still act after that,
// without knowing that its lease is over. To prevent harm, send Token to the resource and let the
// resource refuse lower tokens, as package fence does.
type Lease struct{ l *lease }

// A lease is the state behind a Lease. It is separate so that a Lease that the program dropped
// can be garbage collected while its lease is still renewed (see handle).
type lease struct {
	g      *grant
	root   *lease // the lease that this one shares its grant with (Reentrant), or itself
	token  int64
	since  time.Duration // send time of the call that the store granted, or time of the hand-over
	inline Lease         // the handle, if leaks are not reported

	// The root's mutex guards the fields below, its own and those of leases that share its grant.
	mu       sync.Mutex
	handles  int32                          // root: how many leases were not unlocked, itself included
	released bool                           // this lease was unlocked
	ended    bool                           // root: all leases were unlocked, or the grant was lost or the client closed
	reported bool                           // root: the observer knows that it was acquired
	end      EventKind                      // root: how it ended, if the observer must hear of it later; 0 if not
	lost     bool                           // ended by grant.Lost, the only function that uses it without the mutex
	openAt   time.Duration                  // root: when MinHold is over; 0 without MinHold
	inner    *lease                         // root: the first lease that shares the grant; in the others: the next one
	err      error                          // root: why it ended
	contexts map[<-chan struct{}]contextEnd // by the Done channel of their parents
}

// init makes l the holder of the grant.
func (l *lease) init(g *grant, token int64, since, openAt time.Duration) {
	l.g, l.root, l.since, l.handles = g, l, since, 1
	l.token, l.openAt = token, openAt
	g.lease.Store(l)
}

// minHoldEnd returns when a minimum hold that starts at begin is over, or 0 if minHold is 0.
func minHoldEnd(begin, minHold time.Duration) time.Duration {
	if minHold == 0 {
		return 0
	}
	return begin + minHold
}

// handle returns the Lease for the caller. If the client has an observer or a logger, a Lease that
// is garbage collected although it was not unlocked is reported to them.
func (l *lease) handle() *Lease {
	if l.g.NoRenew || !l.g.c.observed() {
		l.inline.l = l
		return &l.inline
	}
	h := &Lease{l}
	runtime.AddCleanup(h, (*lease).reportLeak, l)
	return h
}

// reportLeak is called when the Lease was garbage collected.
func (l *lease) reportLeak() {
	if l.endedBy() == nil {
		l.g.c.emit(l.event(EventLeaked))
	}
}

// endedBy returns why the lease has ended, or nil if it has not.
func (l *lease) endedBy() error {
	l.root.mu.Lock()
	defer l.root.mu.Unlock()
	return l.overLocked()
}

func (l *lease) name() string { return l.g.Name[len(l.g.c.set.prefix):] }

// Name returns the name that was locked, without the client's prefix.
func (h *Lease) Name() string { return h.l.name() }

// Token returns the fencing token: greater than the token of every earlier holder of this
// name.
func (h *Lease) Token() int64 { return h.l.token }

// ID returns the identity of the grant, which listings show and Break takes. After a hand-over
// the lease of the next goroutine of this client has the same ID.
func (h *Lease) ID() ID { return h.l.g.ID }

// Mode returns how the name is held.
func (h *Lease) Mode() Mode { return h.l.mode() }

func (l *lease) mode() store.Mode { return l.g.c.renewals.Mode(&l.g.Grant.Grant) }

// Deadline returns when the lease ends unless it is renewed earlier. The time is measured by the
// local monotonic clock, and every renewal moves it.
func (h *Lease) Deadline() time.Time { return h.l.g.c.base.Add(h.l.g.Deadline()) }

// Done returns a channel that is closed when the lease ends: at its deadline, when the
// store says that it is lost, or when it is unlocked.
func (h *Lease) Done() <-chan struct{} { return h.l.contextEnd(context.Background(), doneKey).Done() }

// overLocked returns why the lease has ended, or nil if it has not.
func (l *lease) overLocked() error {
	if err := l.root.err; err != nil {
		return err
	}
	if l.released {
		return ErrNotHeld
	}
	return nil
}

// Err returns nil while the lease is held, an error that matches ErrLost after a loss,
// ErrNotHeld after Unlock and ErrClosed after the client was closed. It compares the deadline
// with the clock, so it is right even if a timer is late.
func (h *Lease) Err() error { return h.l.Err() }

func (l *lease) Err() error {
	err := l.endedBy()
	if err == nil && l.g.c.now() >= l.g.Deadline() {
		loss := l.g.c.renewals.Expire(&l.g.Grant.Grant)
		return l.named(&lostError{loss})
	}
	return err
}

// named adds the name of the lock to the reason why a lease ended.
func (l *lease) named(why error) error { return fail("lease", l.name(), why) }

// Unlock hands the lock over to the next goroutine of this client that waits for it, or releases
// it to the store. It works even if ctx has ended: a cancelled request must not leave its lock
// behind. While the store does not answer, Unlock retries for at most 5 seconds, and then
// continues in the background.
//
// It returns ErrLost if the lease was lost before, ErrNotHeld if it was unlocked before,
// ErrUnavailable if the store does not answer (the lock then expires with its TTL), and
// ErrClosed if the client was closed, which released the lock.
func (h *Lease) Unlock(ctx context.Context) error {
	err := h.l.unlock(ctx, store.Keep{}, false)
	runtime.KeepAlive(h)
	return err
}

// unlockUnused unlocks a lease that was never given to a caller, so its MinHold does not apply.
func (l *lease) unlockUnused(ctx context.Context) error {
	l.setMinHold(0)
	return l.unlock(ctx, store.Keep{}, false)
}

// setMinHold sets the minimum hold of a root lease, which begins now. A lease that shares a grant
// (Reentrant) does not change it.
func (l *lease) setMinHold(d time.Duration) {
	openAt := minHoldEnd(l.g.c.now(), d)
	l.mu.Lock()
	l.openAt = openAt
	l.mu.Unlock()
}

// unlock implements Unlock. If this was the last lease on the grant, keep says how the name stays
// closed. The zero Keep means for the rest of MinHold. If all is set, unlock also ends the leases
// that share the grant of a root lease.
func (l *lease) unlock(ctx context.Context, keep store.Keep, all bool) error {
	const op = "unlock"
	c, r := l.g.c, l.root
	if !c.life.Enter() { // Close releases it
		return fail(op, l.name(), cmp.Or(l.Err(), ErrClosed))
	}
	defer c.life.Leave()
	r.mu.Lock()
	if l.released || r.ended {
		err, last := r.err, false
		if l.released {
			err = ErrNotHeld
		} else {
			r.handles--
			last = r.handles == 0 || all
		}
		l.released = true
		r.mu.Unlock()
		if last {
			c.renewals.CleanUp(&l.g.Grant.Grant)
		}
		return fail(op, l.name(), err)
	}
	l.released = true
	// The contexts of the work must end before any other client can have the lock. So the
	// contexts of this lease end before it is subtracted from the handles.
	if r.handles > 1 && !all {
		var ending ending
		ending.add(l)
		r.unlinkLocked(l)
		r.mu.Unlock()
		ending.signal(ErrNotHeld)
		r.mu.Lock()
	}
	r.handles--
	if r.handles > 0 && !all || r.ended {
		r.mu.Unlock()
		return nil
	}
	ending := r.endLocked(ErrNotHeld)
	if keep.State == store.Held && r.openAt > 0 {
		keep = r.restLocked()
	}
	r.mu.Unlock()
	ending.signal(ErrNotHeld)
	err := c.releaseGrant(detach(ctx), r.g, keep)
	if c.observed() {
		e := r.event(EventReleased)
		if errors.Is(err, ErrLost) {
			e.Kind, e.Err, e.Reason = EventLost, err, renewal.Gone.Word
		}
		r.reportEnd(e)
	}
	if err != nil {
		return fail(op, l.name(), err)
	}
	return nil
}

// finish ends a root lease once: it closes Done and cancels the contexts. It returns false if
// the lease had already ended.
func (l *lease) finish(why error) bool {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		return false
	}
	ending := l.endLocked(why)
	l.mu.Unlock()
	ending.signal(why)
	return true
}

// endLocked ends a root lease and the leases that share its grant.
func (l *lease) endLocked(why error) ending {
	var e ending
	e.add(l)
	for handle := l.inner; handle != nil; handle = handle.inner {
		e.add(handle)
	}
	l.ended, l.err, l.inner = true, why, nil
	return e
}

// An ending holds the contexts to cancel when leases end. That happens after their mutex was
// unlocked.
type ending []map[<-chan struct{}]contextEnd

func (e *ending) add(l *lease) {
	if l.contexts != nil {
		*e = append(*e, l.contexts)
		l.contexts = nil
	}
}

func (e ending) signal(why error) {
	for _, contexts := range e {
		for key, end := range contexts {
			if key != doneKey {
				end.cancel(why)
			}
		}
	}
	for _, contexts := range e { // Done last, because a goroutine that waits for it may check its contexts
		if end, ok := contexts[doneKey]; ok {
			end.cancel(why)
		}
	}
}

// rest returns the Keep that closes the name for the rest of MinHold.
func (l *lease) rest() store.Keep {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restLocked()
}

func (l *lease) restLocked() store.Keep {
	if rest := l.openAt - l.g.c.now(); rest > 0 {
		return store.Keep{State: store.Cooling, For: rest}
	}
	return store.Keep{}
}

// Renew extends the lease by its TTL from now. Leases renew themselves unless NoRenew was
// given. It does not extend beyond MaxHold.
//
// It returns ErrLost if the lease was lost, ErrNotHeld after Unlock, ErrClosed after Close of the
// client, and ErrUnavailable if the store does not answer. In the last case the lease lasts until
// its Deadline.
func (h *Lease) Renew(ctx context.Context) error {
	const op = "renew"
	l := h.l
	if err := l.enter(ctx); err != nil {
		return fail(op, l.name(), err)
	}
	defer l.g.c.life.Leave()
	_, err := l.renewNow(ctx)
	if err == nil {
		err = l.Err() // it may have been unlocked meanwhile
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ErrUnavailable):
		return fail(op, l.name(), err, context.Cause(ctx))
	}
	return fail(op, l.name(), err)
}

// renewNow renews the grant. Unchanged says why the store could not change the mode of a grant
// that it has extended.
func (l *lease) renewNow(ctx context.Context) (unchanged, err error) {
	out := l.g.c.renewals.RenewNow(ctx, &l.g.Grant.Grant, 0)
	switch out.Status {
	case store.Gone:
		return nil, cmp.Or[error](l.Err(), errGone) // Close or Unlock may have released it
	case store.Unknown:
		return nil, unavailable("", out.Err)
	}
	if err := l.Err(); errors.Is(err, ErrLost) { // the reply arrived after the deadline
		return nil, err
	}
	return out.Err, nil
}

// Downgrade turns an exclusive lease into a shared one. No writer can get the lock in between.
// The token stays the same. There is no way back: two readers that both want to write would wait
// for each other.
//
// It returns ErrLost if the lease was lost, ErrNotHeld after Unlock, ErrClosed after Close of
// the client, ErrUnsupported if the store has no shared locks, and ErrInvalid if the lease has
// permits or another lease shares its grant. It returns ErrUnavailable if the store does not
// answer or cannot write; the lease then counts as shared, and the next renewal tells the store.
func (h *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	l := h.l
	c, g := l.g.c, l.g
	if err := l.enter(ctx); err != nil {
		return fail(op, l.name(), err)
	}
	defer c.life.Leave()
	if !c.caps.Features.Has(store.FeatureShared) {
		return fail(op, l.name(), fmt.Errorf("%w: the %s store has no %s", ErrUnsupported, c.caps.Store, store.FeatureShared))
	}
	switch l.mode() {
	case store.Shared:
		return nil
	case store.Permits:
		return fail(op, l.name(), fmt.Errorf("%w: permits cannot become a shared lock", ErrInvalid))
	}
	// The lease is shared from here on, even if the call fails, because the store may have
	// executed it. The mutex keeps the grant from being handed over at the same moment.
	r := l.root
	r.mu.Lock()
	err := l.overLocked()
	if err == nil && r.handles > 1 {
		err = fmt.Errorf("%w: another lease shares the grant (Reentrant): unlock that first", ErrInvalid)
	}
	if err == nil {
		c.queue.Drop(&g.Grant)
		c.renewals.SetMode(&g.Grant.Grant, store.Shared)
	}
	r.mu.Unlock()
	if err == nil {
		var unchanged error
		if unchanged, err = l.renewNow(ctx); unchanged != nil {
			err = unavailable("", unchanged)
		}
	}
	if err != nil {
		return fail(op, l.name(), err)
	}
	return nil
}

// enter begins a call on this lease, or returns why it cannot be made. If it returns nil, the
// client's Close waits for the call, which must end with life.Leave.
func (l *lease) enter(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !l.g.c.life.Enter() {
		return ErrClosed
	}
	return nil
}
