package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Lease is a held lock. It renews itself until it is unlocked, lost, or MaxHold is over. Its
// methods may be called from many goroutines, and it belongs to none, so it can be passed on.
//
// A lease ends for its holder before the store can give the lock to anyone else: Done is then
// closed, and contexts made with Context are cancelled with a cause that matches ErrLost. A holder
// that was paused can still act after that: send Token to the resource and let the resource refuse
// lower tokens, as package fence does.
type Lease struct{ p *part }

// Name returns the name that was locked, without the client's prefix.
func (l *Lease) Name() string { return l.p.h.name() }

// Token returns the fencing token: greater than that of every earlier holder of this name.
func (l *Lease) Token() int64 { return l.p.h.token }

// ID returns the identity of the grant, which listings show and Break takes. After a hand-over
// the lease of the next goroutine of this client has the same ID.
func (l *Lease) ID() ID { return l.p.h.g.ID }

// Mode returns how the name is held.
func (l *Lease) Mode() Mode { return l.p.h.mode() }

// Deadline returns when the lease ends unless it is renewed, on the local monotonic clock.
func (l *Lease) Deadline() time.Time { return l.p.h.c.base.Add(l.p.h.g.Deadline()) }

// Done returns a channel that is closed when the lease is lost or unlocked, or the client closed.
func (l *Lease) Done() <-chan struct{} {
	return l.p.doneContext(context.Background()).Done()
}

// Err returns nil while the lease is held, an error that matches ErrLost after a loss,
// ErrNotHeld after Unlock and ErrClosed after the client was closed. It compares the deadline
// with the clock, so it is right even if a timer is late.
func (l *Lease) Err() error { return l.p.err() }

// Unlock hands the lock over to the next goroutine of this client that waits for it, or releases
// it to the store. It works even if ctx has ended: a cancelled request must not leave its lock
// behind. While the store does not answer, Unlock retries for at most 5 seconds, and then
// continues in the background. If it returns ErrUnavailable, the lock expires with its TTL.
// If it returns ErrClosed, the client was closed, which released the lock. If the program closed the
// store before, nothing could release the lock, and it expires with its TTL.
func (l *Lease) Unlock(ctx context.Context) error {
	return l.unlock(ctx, store.Keep{}, false)
}

// Renew extends the lease by its TTL from now, but not beyond MaxHold. Leases renew themselves
// unless NoRenew was given. If it returns ErrUnavailable, the lease lasts until its Deadline.
func (l *Lease) Renew(ctx context.Context) error {
	const op = "renew"
	if err := l.begin(ctx); err != nil {
		return fail(op, l.Name(), err)
	}
	defer l.p.h.c.life.Exit()
	_, err := l.renewNow(ctx)
	if err == nil {
		err = l.Err() // it may have been unlocked meanwhile
	}
	if ctx.Err() != nil && errors.Is(err, ErrUnavailable) {
		return fail(op, l.Name(), err, context.Cause(ctx))
	}
	return failIf(op, l.Name(), err)
}

// renewNow renews the grant. Unchanged says why the store extended it but kept its mode.
func (l *Lease) renewNow(ctx context.Context) (unchanged, err error) {
	out := l.p.h.c.renewals.RenewNow(ctx, l.p.h.g, 0)
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

// Downgrade turns an exclusive lease into a shared one with the same token. No writer gets the lock
// in between. There is no way back: two readers that want to write would wait for each other.
//
// Downgrade returns ErrInvalid if the lease has permits or another lease shares its grant. If it
// returns ErrUnavailable, the lease counts as shared, and the next renewal tells the store: with
// NoRenew, only a call of Renew.
func (l *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	h := l.p.h
	if err := l.begin(ctx); err != nil {
		return fail(op, h.name(), err)
	}
	defer h.c.life.Exit()
	if !h.c.caps.Features.Has(store.FeatureShared) {
		return fail(op, h.name(), fmt.Errorf("%w: the %s store has no %s", ErrUnsupported, h.c.caps.Store, store.FeatureShared))
	}
	switch h.mode() {
	case store.Shared:
		return nil
	case store.Permits:
		return fail(op, h.name(), fmt.Errorf("%w: permits cannot become a shared lock", ErrInvalid))
	}
	if err := l.p.downgrade(); err != nil {
		return fail(op, h.name(), err)
	}
	unchanged, err := l.renewNow(ctx)
	h.c.queue.ForgetRefusal(h.g.Name)
	if unchanged != nil {
		err = unavailable("", unchanged)
	}
	return failIf(op, h.name(), err)
}

// begin begins a call on this lease, or returns why it cannot be made. If it returns nil, the
// client's Close waits for the call, which must end with life.Exit.
func (l *Lease) begin(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !l.p.h.c.life.Enter() {
		return ErrClosed
	}
	return nil
}

// run calls fn under the lease and unlocks it, even if fn panics. Lost is the reason of a loss.
func (l *Lease) run(ctx context.Context, fn func(context.Context) error) (err, lost error) {
	defer func() {
		lost = l.Err() // read before Unlock ends the lease
		if unlockErr := l.Unlock(ctx); lost == nil && (errors.Is(unlockErr, ErrLost) || errors.Is(unlockErr, ErrClosed)) {
			lost = unlockErr
		}
	}()
	return fn(l.Context(ctx)), nil
}
