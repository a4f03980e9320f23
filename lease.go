package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Lease is a held lock. It renews itself until it is unlocked, lost, or MaxHold is over.
// Its methods may be called from many goroutines; whoever has the Lease owns the lock, so
// it can be passed on.
//
// A lease ends for its holder before the store can give the lock to anyone else: Done is
// closed then, and contexts made with Context are cancelled with a cause that matches
// ErrLost. A holder that was paused (a stopped process, a suspended machine) can act after
// that without knowing: give Token to the resource and let it refuse older ones, as
// package fence does.
type Lease struct {
	g     *grant
	root  *Lease // the lease that this one shares its grant with (Reentrant), or itself
	token int64
	since time.Duration // when the call was sent that the store granted, or the hand-over

	// The root's mutex guards the fields below, of itself and of those that share it.
	mu       sync.Mutex
	released bool          // this lease was unlocked
	atLeast  time.Duration // root
	ended    bool          // root: all were unlocked, or it was lost or closed
	handles  int32         // root: how many were not unlocked, itself included
	inner    *Lease        // root: the first of those that share it, of those: the next
	err      error         // root: why it ended
	done     chan struct{} // made when asked for
	contexts map[*leaseContext]struct{}
}

// closed is the Done of leases that ended before anyone asked.
var closed = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// init makes l the holder of the grant, with its next token.
func (l *Lease) init(g *grant, since time.Duration) {
	l.g, l.root, l.since, l.handles = g, l, since, 1
	l.token = g.next
	g.next++
	g.tokens--
	g.lease.Store(l)
}

// Name returns the name that was locked, without the client's prefix.
func (l *Lease) Name() string { return l.g.name[len(l.g.c.set.prefix):] }

// Token returns the fencing token: greater than the token of every earlier holder of this
// name.
func (l *Lease) Token() int64 { return l.token }

// ID returns the identity of the grant, by which listings show it and Break ends it. After
// a hand-over the next goroutine of this client has the same.
func (l *Lease) ID() store.ID { return l.g.id }

// Mode returns how the name is held.
func (l *Lease) Mode() store.Mode {
	l.g.c.renewals.mu.Lock()
	defer l.g.c.renewals.mu.Unlock()
	return l.g.mode
}

// Deadline returns when the lease ends unless it is renewed before. It is on the local
// monotonic clock and moves with every renewal.
func (l *Lease) Deadline() time.Time {
	return l.g.c.base.Add(time.Duration(l.g.deadline.Load()))
}

// Done returns a channel that is closed when the lease ends: at its deadline, when the
// store says that it is lost, or when it is unlocked.
func (l *Lease) Done() <-chan struct{} {
	r := l.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.overLocked() != nil {
		return closed
	}
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

// overLocked returns why the lease has ended, nil if it has not.
func (l *Lease) overLocked() error {
	if err := l.root.err; err != nil {
		return err
	}
	if l.released {
		return ErrNotHeld
	}
	return nil
}

// Err returns nil while the lease is held, an error that matches ErrLost after a loss,
// ErrNotHeld after Unlock and ErrClosed after the client was closed. It looks at the clock,
// so it is right even if a timer is late.
func (l *Lease) Err() error {
	r := l.root
	r.mu.Lock()
	err := l.overLocked()
	r.mu.Unlock()
	if err == nil && l.g.c.now() >= time.Duration(l.g.deadline.Load()) {
		return l.named(l.g.c.expire(l.g))
	}
	return err
}

// named adds the name of the lock to the reason why a lease ended.
func (l *Lease) named(why error) error { return fail("lease", l.Name(), why) }


// Unlock releases the lock, to the next goroutine of this client that waits for it or to
// the store. It works if ctx has ended, since a lock must not stay behind because a request
// was cancelled: it makes several attempts in a few seconds and goes on in the background
// after that.
//
// Errors: ErrLost if the lease was lost before, ErrNotHeld if it was unlocked before,
// ErrUnavailable if the store does not answer, the lock then frees itself after its TTL;
// ErrClosed if the client was closed, which released it.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.unlock(ctx, store.Keep{}, false)
}

// unlockAll unlocks a root lease together with those that share its grant.
func (l *Lease) unlockAll(ctx context.Context, keep store.Keep) error {
	return l.unlock(ctx, keep, true)
}

// giveBack unlocks a lease that nobody has used: there is no minimum hold to keep.
func (l *Lease) giveBack(ctx context.Context) error {
	l.holdAtLeast(0)
	return l.Unlock(ctx)
}

// holdAtLeast sets the minimum hold.
func (l *Lease) holdAtLeast(d time.Duration) {
	r := l.root
	r.mu.Lock()
	r.atLeast = d
	r.mu.Unlock()
}

// unlock is Unlock. Keep says what is left behind, beyond the rest of AtLeast, if this was the
// last lease on the grant. All ends the leases that share the grant of a root lease too.
func (l *Lease) unlock(ctx context.Context, keep store.Keep, all bool) error {
	const op = "unlock"
	c, r := l.g.c, l.root
	if !c.calls.enter() { // Close releases it
		return fail(op, l.Name(), cmp.Or(l.Err(), ErrClosed))
	}
	defer c.calls.leave()
	r.mu.Lock()
	if l.released || r.ended {
		err := r.err
		if l.released {
			err = ErrNotHeld
		}
		l.released = true
		r.mu.Unlock()
		return fail(op, l.Name(), err)
	}
	l.released = true
	// The work's contexts end before anyone else can have the lock: those of this lease
	// before it stops to count.
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
	if keep.State == store.Held && r.atLeast > 0 {
		keep = r.restLocked()
	}
	r.mu.Unlock()
	ending.signal(ErrNotHeld)
	err := c.giveUp(detach(ctx), r, keep)
	if c.observed() {
		e := r.event(EventReleased)
		if errors.Is(err, ErrLost) {
			e.Kind, e.Err = EventLost, err
		}
		c.emit(e)
	}
	if err != nil {
		return fail(op, l.Name(), err)
	}
	return nil
}

// finish ends a root lease once: it closes Done and cancels the contexts. It is false if
// the lease had ended before.
func (l *Lease) finish(why error) bool {
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

// endLocked ends a root lease and those that share it.
func (l *Lease) endLocked(why error) ending {
	var e ending
	e.add(l)
	for handle := l.inner; handle != nil; handle = handle.inner {
		e.add(handle)
	}
	l.ended, l.err, l.inner = true, why, nil
	return e
}

// An ending is whom to tell of the end of leases, outside of their mutex.
type ending struct {
	dones    []chan struct{}
	contexts []map[*leaseContext]struct{}
}

func (e *ending) add(l *Lease) {
	if l.done != nil {
		e.dones = append(e.dones, l.done)
	}
	if l.contexts != nil {
		e.contexts = append(e.contexts, l.contexts)
	}
	l.done, l.contexts = nil, nil
}

func (e *ending) signal(why error) {
	for _, contexts := range e.contexts {
		for ctx := range contexts {
			ctx.cancel(why)
		}
	}
	for _, done := range e.dones { // who waits for this may look at the contexts
		close(done)
	}
}

// rest is what keeps the name closed for the rest of AtLeast.
func (l *Lease) rest() store.Keep {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restLocked()
}

func (l *Lease) restLocked() store.Keep {
	if rest := l.atLeast - (l.g.c.now() - l.since); rest > 0 {
		return store.Keep{State: store.Cooling, For: rest}
	}
	return store.Keep{}
}

// Renew extends the lease by its TTL from now. Leases renew themselves unless NoRenew was
// given. It does not extend beyond MaxHold.
//
// Errors: ErrLost, ErrNotHeld, ErrClosed; ErrUnavailable if the store does not answer, the
// lease then lasts until its Deadline.
func (l *Lease) Renew(ctx context.Context) error {
	const op = "renew"
	if err := l.usable(ctx); err != nil {
		return fail(op, l.Name(), err)
	}
	_, err := l.g.c.renewNow(ctx, l.g, 0)
	if err == nil {
		err = l.Err() // unlocked meanwhile
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && errors.Is(err, ErrUnavailable):
		return fail(op, l.Name(), err, context.Cause(ctx))
	}
	return fail(op, l.Name(), err)
}

// Downgrade turns an exclusive lease into a shared one without letting a writer in between.
// The token stays the same. There is no way back: two readers that both want to write would
// wait for each other.
//
// Errors: as of Renew, after ErrUnavailable the lease counts as shared and the next renewal
// tells the store; ErrUnsupported; ErrInvalid if the lease has permits or another shares it.
func (l *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	c, g := l.g.c, l.g
	if err := l.usable(ctx); err != nil {
		return fail(op, l.Name(), err)
	}
	if !c.caps.Features.Has(store.FeatureShared) {
		return fail(op, l.Name(), fmt.Errorf("%w: the %s store has no %s", ErrUnsupported, c.caps.Store, store.FeatureShared))
	}
	switch l.Mode() {
	case store.Shared:
		return nil
	case store.Permits:
		return fail(op, l.Name(), fmt.Errorf("%w: permits cannot become a shared lock", ErrInvalid))
	}
	// Shared from here on, whatever becomes of the call: the store may have acted on it.
	// Under the mutex, so that the grant is not handed over in the same moment.
	r := l.root
	r.mu.Lock()
	err := l.overLocked()
	if err == nil && r.handles > 1 {
		err = fmt.Errorf("%w: another lease shares the grant (Reentrant): unlock that first", ErrInvalid)
	}
	if err == nil {
		c.unslot(g)
		c.renewals.mu.Lock()
		g.mode = store.Shared
		c.renewals.mu.Unlock()
	}
	r.mu.Unlock()
	if err != nil {
		return fail(op, l.Name(), err)
	}
	if _, err := c.renewNow(ctx, g, 0); err != nil {
		return fail(op, l.Name(), err)
	}
	return nil
}

// usable returns why a call on this lease cannot be made, nil if it can.
func (l *Lease) usable(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
