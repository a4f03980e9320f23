package holdfast

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Client takes and holds locks in one store. It may be used by many goroutines, and a
// program needs only one per store: goroutines that share a client pass a busy lock on
// among themselves without asking the store.
type Client struct {
	store store.Store
	caps  store.Capabilities
	set   settings
	bad   error // a mistake in the options, reported by every call
	owned bool  // Open made the store, so Close closes it

	base     time.Time // zero of the client's monotonic clock
	ids      idSource
	slots    slots
	waiters  sync.Pool
	renewals renewals
	warnings [EventGaveUp + 1]warnings // by kind of event

	calls calls              // what is under way
	life  context.Context    // ends when Close begins: waiters stop
	end   context.CancelFunc // ends life
	work  context.Context    // ends when Close stops waiting: background work stops
	stop  context.CancelFunc // ends work
}

// New returns a client of a store. A mistake in the options is reported by the client's
// calls as ErrInvalid.
func New(s store.Store, opts ...Option) *Client {
	c := &Client{store: s, set: newSettings(opts), base: time.Now()}
	if s == nil {
		c.bad = fmt.Errorf("%w: New(nil): give a store", ErrInvalid)
	} else {
		c.caps = s.Capabilities()
		c.bad = c.set.check(&c.caps)
	}
	c.ids.prefix = store.NewID()
	c.slots.init()
	c.calls.idle = make(chan struct{})
	c.life, c.end = context.WithCancel(context.Background())
	c.work, c.stop = context.WithCancel(context.Background())
	return c
}

// now is the time on the client's own monotonic clock, from which all deadlines count.
func (c *Client) now() time.Duration { return time.Since(c.base) }

// Capabilities tells what the client's store can do.
func (c *Client) Capabilities() store.Capabilities { return c.caps }

// Owner returns the text by which others know this client (see WithOwner).
func (c *Client) Owner() string { return c.set.owner }

// Lock waits for its turn and takes the lock alone. The lease does not depend on ctx once
// it is granted.
//
// Errors: ErrHeld together with the context's cause if the wait ended first, ErrUnavailable,
// ErrWouldDeadlock if ctx holds the name already, ErrUnsupported, ErrClosed, ErrInvalid.
func (c *Client) Lock(ctx context.Context, name string, opts ...CallOption) (*Lease, error) {
	cl := lockCall("lock", name)
	return c.take(ctx, &cl, opts)
}

// TryLock is Lock with a single attempt: it does not wait for a holder.
//
// Errors: as of Lock; ErrHeld is a *HeldError that says who holds it.
func (c *Client) TryLock(ctx context.Context, name string, opts ...CallOption) (*Lease, error) {
	return c.take(ctx, &call{op: "try lock", name: name, req: store.Request{Mode: store.Exclusive, Weight: 1}, try: true}, opts)
}

// RLock waits for its turn and takes the lock together with other readers. A writer that
// waits is not overtaken by later readers.
//
// Errors: as of Lock.
func (c *Client) RLock(ctx context.Context, name string, opts ...CallOption) (*Lease, error) {
	return c.take(ctx, &call{op: "read lock", name: name, req: store.Request{Mode: store.Shared, Weight: 1}}, opts)
}

// TryRLock is RLock with a single attempt.
//
// Errors: as of TryLock.
func (c *Client) TryRLock(ctx context.Context, name string, opts ...CallOption) (*Lease, error) {
	return c.take(ctx, &call{op: "try read lock", name: name, req: store.Request{Mode: store.Shared, Weight: 1}, try: true}, opts)
}

// Acquire waits for its turn and takes that many permits of the ones that Limit gives the
// name. A large request is not overtaken by later small ones.
//
// Errors: as of Lock; ErrInvalid also if the name is in use with another limit.
func (c *Client) Acquire(ctx context.Context, name string, permits int, opts ...CallOption) (*Lease, error) {
	return c.take(ctx, &call{op: "acquire", name: name, req: store.Request{Mode: store.Permits, Weight: permits}}, opts)
}

// TryAcquire is Acquire with a single attempt.
//
// Errors: as of TryLock; ErrInvalid also if the name is in use with another limit.
func (c *Client) TryAcquire(ctx context.Context, name string, permits int, opts ...CallOption) (*Lease, error) {
	return c.take(ctx, &call{op: "try acquire", name: name, req: store.Request{Mode: store.Permits, Weight: permits}, try: true}, opts)
}

// Do holds the lock while fn runs. Its context is cancelled when the lock is lost, and
// carries the lease: see TokenFrom.
//
// Errors: those of Lock, before fn runs; fn's own; ErrLost, together with fn's own, if the
// lock was lost while fn ran, ErrClosed likewise if the client was closed. A release that fails is not an error of the work: it is told
// to the Observer, and the lock frees itself.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context) error, opts ...CallOption) error {
	const op = "do"
	if fn == nil {
		return fail(op, name, errNilFunc)
	}
	cl := lockCall(op, name)
	lease, err := c.take(ctx, &cl, opts)
	if err != nil {
		return err
	}
	err, lost := lease.run(ctx, fn)
	return joinLoss(op, name, lost, err)
}

// joinLoss is the error of work that ended with err and whose lock was lost, if lost is not
// nil. Work that returns the loss itself, as context.Cause tells it, is not told twice.
func joinLoss(op, name string, lost, err error) error {
	if lost == nil || isLossOf(err, name) {
		return err
	}
	return errors.Join(fail(op, name, lost), err)
}

var (
	errNilFunc    = fmt.Errorf("%w: nil function: give the work to do", ErrInvalid)
	errNilContext = fmt.Errorf("%w: nil context: use context.Background()", ErrInvalid)
)

// run calls fn under the lease and unlocks it, also when fn panics. Lost is the reason if
// the lease was lost.
func (l *Lease) run(ctx context.Context, fn func(context.Context) error) (err, lost error) {
	defer func() {
		lost = l.Err() // before Unlock: also when the client was closed
		if unlockErr := l.Unlock(ctx); lost == nil && (errors.Is(unlockErr, ErrLost) || errors.Is(unlockErr, ErrClosed)) {
			lost = unlockErr
		}
	}()
	return fn(l.Context(ctx)), nil
}

// take is the common way of all acquiring calls.
func (c *Client) take(ctx context.Context, cl *call, opts []CallOption) (*Lease, error) {
	if err := c.prepare(ctx, cl, opts); err != nil {
		return nil, err
	}
	if !c.calls.enter() {
		return nil, fail(cl.op, cl.name, ErrClosed)
	}
	defer c.calls.leave()
	if outer := c.holds(ctx, cl.req.Name); outer != nil {
		if cl.reentrant || !cl.try {
			return outer.again(cl)
		}
	}
	if ctx.Err() != nil {
		return nil, fail(cl.op, cl.name, context.Cause(ctx))
	}
	if cl.wait > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, cl.wait, &waitedError{cl.wait})
		defer cancel()
		ctx = limited
	}
	begin := c.now()
	lease, err := c.enqueue(ctx, cl, begin)
	if err != nil && c.observed() {
		c.emit(Event{Kind: EventGaveUp, Name: cl.name, Mode: cl.req.Mode, Waited: c.now() - begin, Queued: cl.waiting, Err: err})
	}
	return lease, err
}

// waitedError is the cause of a wait that Wait ended.
type waitedError struct{ limit time.Duration }

func (e *waitedError) Error() string        { return "waited " + e.limit.String() }
func (e *waitedError) Is(target error) bool { return target == context.DeadlineExceeded }

const (
	// callTimeout bounds a single call to the store. It is longer than a healthy server
	// takes, and short enough for a second attempt within patience.
	callTimeout = 3 * time.Second

	// patience bounds how long Lock and Unlock try a store that does not answer.
	patience = 5 * time.Second

	// openTimeout bounds how long Open tries to reach the store.
	openTimeout = 10 * time.Second
)

// bound limits a call to the store to d, and to callTimeout. If the store itself ends calls
// in that time, it returns ctx as it is: a context with a timer costs more than the rest of
// an uncontended call.
func (c *Client) bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	d = min(d, callTimeout)
	if c.caps.Instant || c.caps.Timeout > 0 && c.caps.Timeout <= d {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// errNoReply replaces the error of a call that ran into the timeout of bound.
var errNoReply = errors.New("no reply in time")

// noReply returns errNoReply if a call failed because its own timeout expired while the
// caller's context was alive, and err otherwise.
func noReply(ctx, callCtx context.Context, err error) error {
	if err != nil && callCtx.Err() != nil && ctx.Err() == nil {
		return errNoReply
	}
	return err
}

// detach returns a context for calls that must be made although ctx may have ended.
func detach(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	if ctx.Done() == nil {
		return ctx // spares the allocation
	}
	return context.WithoutCancel(ctx)
}

// idSource makes identities: the client's random part and a number. Unlike fresh random
// bits for every grant it needs no system call and no allocation.
type idSource struct {
	prefix store.ID
	n      atomic.Uint64
}

func (s *idSource) next() store.ID {
	id := s.prefix
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], s.n.Add(1))
	copy(id[10:], n[2:]) // 80 random bits and 48 of the number
	return id
}
