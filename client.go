package holdfast

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/core/lifetime"
	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// A Client takes and holds locks in one store. It is safe for concurrent use. A program needs only
// one per store: its goroutines hand a busy lock over to each other without asking the store.
type Client struct {
	store *bounded.Store
	life  lifetime.Lifetime
	base  time.Time // zero of the clock
	caps  store.Capabilities
	set   settings
	owned bool // Open made the store, so Close closes it

	ids      idSource
	queue    localqueue.Queue
	renewals renewal.Scheduler
	warnings [EventLeaked + 1]warnings // by kind of event
}

// now is the time on the client's own monotonic clock, from which all deadlines count.
func (c *Client) now() time.Duration { return time.Since(c.base) }

// New returns a client of a store. The store stays open when the client is closed.
func New(s store.Store, opts ...Option) (*Client, error) {
	const op = "new"
	if s == nil {
		return nil, fail(op, "", fmt.Errorf("%w: store is nil", ErrInvalid))
	}
	c := &Client{caps: s.Capabilities()}
	c.set = newSettings(opts, &c.caps)
	if err := c.set.check(&c.caps); err != nil {
		return nil, fail(op, "", err)
	}
	c.base = time.Now()
	c.store = bounded.New(s)
	c.life.Begin()
	c.ids.prefix = store.NewID()
	c.renewals.Init(c.store, &c.life, c.now, c.removeAll)
	c.queue.Init(localqueue.Config{
		Renewals: &c.renewals,
		Now:      c.now,
		Limit:    c.set.handoverLimit,
		Slice:    c.set.handoverSlice,
		Ordered:  c.caps.Features.Wakes(),
		Owner:    c.set.owner,
	})
	return c, nil
}

const openTimeout = 10 * time.Second

// Open opens the store that a URL identifies, such as "redis://127.0.0.1:6379", and returns a
// client that closes it. The package of the store must be imported. Open returns ErrUnavailable if
// the store cannot be reached within 10 seconds or before ctx ends. No error shows a password.
func Open(ctx context.Context, url string, opts ...Option) (*Client, error) {
	const op = "open"
	if ctx == nil {
		return nil, fail(op, "", errNilContext)
	}
	bounded, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := store.Open(bounded, url)
	switch {
	case err == nil:
	case permanent(err):
		return nil, fail(op, "", err)
	case ctx.Err() != nil:
		return nil, fail(op, "", unavailable("", err), context.Cause(ctx))
	default:
		return nil, fail(op, "", unavailable("", err))
	}
	c, err := New(s, opts...)
	if err != nil {
		s.Close()
		return nil, fail(op, "", err)
	}
	c.owned = true
	return c, nil
}

// Capabilities returns what the client's store supports.
func (c *Client) Capabilities() Capabilities { return c.caps }

// Owner returns the text that identifies this client to others (see WithOwner).
func (c *Client) Owner() string { return c.set.owner }

// Lock waits for its turn and takes the lock exclusively. The lease does not depend on ctx.
func (c *Client) Lock(ctx context.Context, name string, opts ...CallOption) (*Lease, error) {
	cl := newCall("lock", name, store.Exclusive)
	return c.take(ctx, &cl, opts)
}

// TryLock takes the lock exclusively if it is free, in a single attempt. It waits for no holder.
func (c *Client) TryLock(ctx context.Context, name string, opts ...CallOption) (*Lease, error) {
	cl := newCall("try lock", name, store.Exclusive)
	cl.Try = true
	return c.take(ctx, &cl, opts)
}

// RLock waits for its turn and takes the lock with other readers, but not before earlier writers.
func (c *Client) RLock(ctx context.Context, name string, opts ...CallOption) (*Lease, error) {
	cl := newCall("read lock", name, store.Shared)
	return c.take(ctx, &cl, opts)
}

// TryRLock takes the lock with other readers, in a single attempt, if no writer has or awaits it.
func (c *Client) TryRLock(ctx context.Context, name string, opts ...CallOption) (*Lease, error) {
	cl := newCall("try read lock", name, store.Shared)
	cl.Try = true
	return c.take(ctx, &cl, opts)
}

// Do takes the lock exclusively and holds it while fn runs. The context of fn is cancelled when
// the lock is lost, and carries the lease: see TokenFrom.
//
// Do returns the error of fn. If the lock was lost or the client closed meanwhile, it also matches
// ErrLost or ErrClosed. Only the Observer hears of a failed release.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...CallOption) error {
	const op = "do"
	if fn == nil {
		return fail(op, name, errNilFunc)
	}
	cl := newCall(op, name, store.Exclusive)
	lease, err := c.take(ctx, &cl, opts)
	if err != nil {
		return err
	}
	err, lost := lease.run(ctx, fn)
	return joinLoss(op, name, lost, err)
}

// take takes a lock. All acquiring calls use it.
func (c *Client) take(ctx context.Context, cl *call, opts []CallOption) (*Lease, error) {
	if err := c.prepare(ctx, cl, opts); err != nil {
		return nil, err
	}
	if !c.life.Enter() {
		return nil, fail(cl.op, cl.name, ErrClosed)
	}
	defer c.life.Exit()
	if outer := c.holds(ctx, cl.Request.Name); outer != nil && (cl.reentrant || !cl.Try) {
		inner, err := outer.again(cl)
		if err != nil {
			return nil, err
		}
		return inner.lease(), nil
	}
	if ctx.Err() != nil {
		return nil, fail(cl.op, cl.name, context.Cause(ctx))
	}
	if cl.wait > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, cl.wait, &waitedError{cl.wait})
		defer cancel()
		ctx = limited
	}
	cl.Begin = c.now()
	var h *hold
	handed, err := false, errPanicked
	defer func() { // even if a strategy panics
		if c.observed() {
			c.reportTaken(ctx, cl, h, handed, err)
		}
	}()
	h, handed, err = c.acquire(ctx, cl)
	if err != nil {
		return nil, err
	}
	return h.first.lease(), nil
}
