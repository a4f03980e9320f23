package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
)

// longName is the prefix of names that are held for so long that their leases are renewed.
const longName = "x"

// turn makes one of all calls of the library.
func (w *worker) turn(ctx context.Context, h *hand) error {
	c := w.current()
	ttl := w.ttl(h)
	name := fmt.Sprint("n", h.IntN(huntNames))
	patient := w.caps.Heartbeat + 2*keptTTL + 10*time.Second // longer than anybody may have to wait
	wait, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	switch dice := h.IntN(100); {
	case dice < 30:
		return w.hold(wait, h, c, Hold{Name: name, TTL: ttl}, c.Lock)
	case dice < 36:
		return w.hold(wait, h, c, Hold{Name: name, TTL: ttl}, c.TryLock)
	case dice < 46: // cancelled soon
		soon, cancel := context.WithTimeout(ctx, h.upTo(10*time.Millisecond))
		defer cancel()
		return w.hold(soon, h, c, Hold{Name: name, TTL: ttl}, c.Lock)
	case dice < 48:
		return w.hold(wait, h, c, Hold{Name: name, TTL: ttl}, c.Lock, holdfast.Wait(h.upTo(ttl)), holdfast.Meta("hunt"))
	case dice < 58 && w.has(holdfast.FeatureShared):
		return w.holdShared(wait, h, fmt.Sprint("r", h.IntN(4)), ttl)
	case dice < 66 && w.has(holdfast.FeaturePermits):
		name := fmt.Sprint("s", h.IntN(2))
		s := c.Semaphore(name, huntPermits)
		n := 1 + h.IntN(2)
		acquire := func(ctx context.Context, _ string, opts ...holdfast.CallOption) (*holdfast.Lease, error) {
			if h.IntN(3) == 0 {
				return s.TryAcquire(ctx, n, opts...)
			}
			return s.Acquire(ctx, n, opts...)
		}
		return w.hold(wait, h, c, Hold{Name: name, Permits: n, Limit: huntPermits, TTL: ttl}, acquire)
	case dice < 72:
		return w.lockAll(wait, h, ttl)
	case dice < 75:
		asked := now()
		err := c.Do(wait, name, func(ctx context.Context) error { return w.under(ctx, c, h, Hold{Asked: asked, TTL: ttl}) }, holdfast.TTL(ttl))
		return w.ended(c, name, asked, err)
	case dice < 78 && w.has(holdfast.FeatureKeep):
		return w.once(wait, h, c, fmt.Sprint("o", h.IntN(2)), ttl)
	case dice < 81:
		asked, name := now(), fmt.Sprint("l", h.IntN(2))
		err := c.Campaign(wait, name, func(ctx context.Context) error { return w.under(ctx, c, h, Hold{Asked: asked, TTL: ttl}) }, holdfast.TTL(ttl), holdfast.Wait(ttl))
		return w.ended(c, name, asked, err)
	case dice < 84 && w.has(holdfast.FeatureKeep):
		d := h.upTo(100 * time.Millisecond)
		return w.hold(wait, h, c, Hold{Name: fmt.Sprint("m", h.IntN(4)), TTL: ttl, Closed: d}, c.Lock, holdfast.MinHold(d))
	case dice < 86:
		return w.hold(wait, h, c, Hold{Name: name, TTL: ttl, Lost: -1}, c.Lock, holdfast.MaxHold(h.upTo(ttl)))
	case dice < 89:
		return w.hold(wait, h, c, Hold{Name: name, TTL: ttl, Lost: -1}, c.Lock, holdfast.NoRenew())
	case dice < 90:
		strategy := holdfast.MaxAttempts(3, holdfast.Backoff(10*time.Millisecond, time.Second))
		return w.hold(wait, h, c, Hold{Name: name, TTL: ttl}, c.Lock, holdfast.Retry(strategy), holdfast.Require(holdfast.FeatureProcesses))
	case dice < 95 && w.has(holdfast.FeatureList):
		return w.breakOrList(wait, h, c)
	case dice == 95:
		// Few goroutines wait for names that are held for long, so that the others show the rate.
		name, lock := fmt.Sprint(longName, h.IntN(3)), c.TryLock
		if h.IntN(20) == 0 {
			lock = c.Lock
		}
		return w.hold(wait, h, c, Hold{Name: name, TTL: ttl}, lock)
	case dice == 96 && w.number > 0:
		if err := w.reopen(); err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			return err
		}
	}
	return nil
}

// ttl returns the TTL of a call. Most calls use the same one, so that locks are handed over.
func (w *worker) ttl(h *hand) time.Duration {
	ttl := huntTTL
	if h.IntN(8) == 0 {
		ttl = time.Second + h.upTo(2*time.Second)
	}
	return max(ttl, w.caps.MinTTL)
}

// upTo returns a random time of at least a microsecond.
func (h *hand) upTo(d time.Duration) time.Duration {
	return time.Microsecond + time.Duration(h.Int64N(int64(d)))
}

// rounding is how much earlier than asked for a closed name may be open: stores count milliseconds.
const rounding = 2 * time.Millisecond

type lockFunc func(ctx context.Context, name string, opts ...holdfast.CallOption) (*holdfast.Lease, error)

// hold takes a lock, works under it, and releases it. If hold.Lost is set, the loss of the lease
// is expected.
func (w *worker) hold(ctx context.Context, h *hand, c *holdfast.Client, hold Hold, lock lockFunc, opts ...holdfast.CallOption) error {
	hold.Asked = now()
	lease, err := lock(ctx, hold.Name, append(opts, holdfast.TTL(hold.TTL))...)
	if err != nil {
		return w.ended(c, hold.Name, hold.Asked, err)
	}
	if hold.Closed > 0 {
		hold.Closed += hold.Asked - rounding
	}
	mayLose := hold.Lost != 0
	hold.Lost = 0
	return w.finish(ctx, w.recorder().adopt(c, lease, hold), w.use(ctx, h, lease, hold), mayLose)
}

// finish releases a lock after work.
func (w *worker) finish(ctx context.Context, h *held, work func(*held) error, mayLose bool) error {
	err := work(h)
	if !h.believes() && !mayLose {
		h.lost()
	}
	return errors.Join(err, allowed(h.unlock(ctx)))
}

// use returns the work under a lock: an update of the resource, or just time.
func (w *worker) use(ctx context.Context, h *hand, lease *holdfast.Lease, hold Hold) func(*held) error {
	return func(l *held) error {
		if strings.HasPrefix(hold.Name, longName) {
			for end := now() + hold.TTL + hold.TTL/2; now() < end && l.believes(); {
				pause(ctx, 5*time.Millisecond)
			}
		}
		if h.IntN(10) == 0 && ctx.Err() == nil {
			if err := w.again(l, lease.Mode()); err != nil {
				return err
			}
		}
		if h.IntN(20) == 0 {
			if err := allowed(lease.Renew(ctx)); err != nil {
				return err
			}
		}
		if lease.Mode() != holdfast.ModeExclusive {
			pause(ctx, h.upTo(20*time.Millisecond))
			l.believes()
			return nil
		}
		return w.update(ctx, h, l)
	}
}

// again locks a name that its context already holds.
func (w *worker) again(l *held, mode holdfast.Mode) error {
	if mode != holdfast.ModeExclusive {
		return nil
	}
	c := w.current()
	inner, err := c.Lock(l.ctx, l.Name(), holdfast.Reentrant())
	if err == nil {
		valid := l.Err() == nil // otherwise the inner one is a lease of its own
		err := allowed(inner.Unlock(context.WithoutCancel(l.ctx)))
		if valid && inner.Token() != l.Token() {
			return fmt.Errorf("the reentrant lease of %q has token %d, the outer one %d", l.Name(), inner.Token(), l.Token())
		}
		return err
	}
	if c.Owner() == l.hold.Who && errors.Is(err, holdfast.ErrWouldDeadlock) {
		return fmt.Errorf("reentrant: %w", err)
	}
	return allowed(err)
}

// update adds one to the resource, with a pause between the read and the write.
func (w *worker) update(ctx context.Context, h *hand, l *held) error {
	name := l.Name()
	read, err := h.resource.read(name, l.Token())
	if err != nil {
		return stale(err)
	}
	l.believes()
	pause(ctx, h.upTo(10*time.Millisecond))
	l.believes()
	w.print(report{Writing: name})
	err = h.resource.write(name, l.Token(), read)
	w.print(report{Writing: name, Done: err == nil || errors.Is(err, fence.ErrStale), Accepted: err == nil})
	return stale(err)
}

// stale passes on errors of the resource, except that it refused a token: S1 and S2 tell whether
// that was right.
func stale(err error) error {
	if errors.Is(err, fence.ErrStale) {
		return nil
	}
	return err
}

// under works inside Do, Once or Campaign, whose context has the lease.
func (w *worker) under(ctx context.Context, c *holdfast.Client, h *hand, hold Hold) error {
	lease := holdfast.LeaseFrom(ctx)
	l := w.recorder().adopt(c, lease, hold)
	err := w.use(ctx, h, lease, hold)(l)
	l.believes()
	l.change(func(hold *Hold) { hold.Unlock = now() }) // the call releases the lock
	return err
}

func (w *worker) once(ctx context.Context, h *hand, c *holdfast.Client, name string, ttl time.Duration) error {
	asked, keep := now(), 50*time.Millisecond+h.upTo(200*time.Millisecond)
	var l *held
	err := c.Once(ctx, name, keep, func(ctx context.Context) error {
		l = w.recorder().adopt(c, holdfast.LeaseFrom(ctx), Hold{Asked: asked, TTL: ttl})
		pause(ctx, h.upTo(10*time.Millisecond))
		l.believes()
		return nil
	}, holdfast.TTL(ttl))
	if l != nil {
		l.change(func(hold *Hold) {
			hold.Unlock = hold.Believed // it was released after that
			if err == nil {
				hold.Freed, hold.Closed = now(), hold.Believed+keep-rounding
			}
		})
	}
	return w.ended(c, name, asked, err)
}

// holdShared takes a shared lock, or an exclusive one that is sometimes downgraded.
func (w *worker) holdShared(ctx context.Context, h *hand, name string, ttl time.Duration) error {
	c := w.current()
	switch h.IntN(5) {
	case 0:
		return w.hold(ctx, h, c, Hold{Name: name, TTL: ttl}, c.Lock)
	case 1:
		return w.hold(ctx, h, c, Hold{Name: name, TTL: ttl, Shared: true}, c.TryRLock)
	case 2:
		return w.hold(ctx, h, c, Hold{Name: name, TTL: ttl, Shared: true}, c.RLock)
	}
	hold := Hold{Name: name, TTL: ttl, Asked: now()}
	lease, err := c.Lock(ctx, name, holdfast.TTL(ttl))
	if err != nil {
		return w.ended(c, name, hold.Asked, err)
	}
	l := w.recorder().adopt(c, lease, hold)
	pause(ctx, h.upTo(5*time.Millisecond))
	l.believes()
	l.change(func(hold *Hold) { hold.Unlock = now() }) // from here on it may be shared
	err = lease.Downgrade(ctx)
	if err != nil {
		return errors.Join(allowed(err), allowed(lease.Unlock(ctx)))
	}
	l.change(func(hold *Hold) { hold.Freed = now() })
	hold.Shared = true
	return w.finish(ctx, w.recorder().adopt(c, lease, hold), w.use(ctx, h, lease, hold), false)
}

// lockAll takes several names at once.
func (w *worker) lockAll(ctx context.Context, h *hand, ttl time.Duration) error {
	c, asked := w.current(), now()
	var names []string
	for range 2 + h.IntN(2) {
		names = append(names, fmt.Sprint("n", h.IntN(huntNames)))
	}
	set, err := c.LockAll(ctx, names, holdfast.TTL(ttl))
	if err != nil {
		return w.ended(c, "", asked, err)
	}
	var all []*held
	for _, lease := range set.Leases() {
		all = append(all, w.recorder().adopt(c, lease, Hold{Asked: asked, TTL: ttl}))
	}
	pause(ctx, h.upTo(10*time.Millisecond))
	for _, l := range all {
		err = errors.Join(err, w.update(ctx, h, l))
	}
	for _, l := range all {
		if !l.believes() {
			l.lost()
		}
		err = errors.Join(err, allowed(l.unlock(ctx)))
	}
	return err
}

// breakOrList breaks a grant, or reads who holds what.
func (w *worker) breakOrList(ctx context.Context, h *hand, c *holdfast.Client) error {
	name := fmt.Sprint("b", h.IntN(2))
	switch h.IntN(5) {
	case 0:
		for _, err := range c.List(ctx, "") {
			return allowed(err) // the first is enough
		}
		return nil
	case 1:
		_, err := c.Leader(ctx, "l0")
		if errors.Is(err, holdfast.ErrNotHeld) {
			return nil
		}
		return allowed(err)
	case 2:
		info, err := c.Inspect(ctx, name)
		for _, holder := range info.Holders {
			w.print(report{Ends: Grant(name, holder.ID.String()), At: now()})
			if err := c.Break(ctx, name, holder.ID); !errors.Is(err, holdfast.ErrNotHeld) {
				return allowed(err)
			}
		}
		return allowed(err)
	}
	return w.hold(ctx, h, c, Hold{Name: name, TTL: huntTTL}, c.Lock)
}

// ended records a call without a lease.
func (w *worker) ended(c *holdfast.Client, name string, asked time.Duration, err error) error {
	if err != nil && name != "" {
		w.recorder().unknown(Attempt{Who: c.Owner(), Name: name, Asked: asked, Ended: now()})
	}
	return allowed(err)
}

// allowed returns nil if the documentation of the calls in a hunt names the error.
func allowed(err error) error {
	for _, known := range []error{
		nil, holdfast.ErrHeld, holdfast.ErrLost, holdfast.ErrDone, holdfast.ErrUnavailable, holdfast.ErrClosed,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return nil
		}
	}
	return err
}
