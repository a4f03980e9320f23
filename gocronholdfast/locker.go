package gocronholdfast

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// A Locker is a gocron.Locker. Use it with gocron.WithDistributedLocker for all jobs of a scheduler,
// or with gocron.WithDistributedJobLocker for one job.
type Locker struct {
	c      *holdfast.Client
	opts   []holdfast.CallOption
	leases sync.Map // the *holdfast.Lease of each job that runs here, by the name of the job
}

// NewLocker returns a Locker that keeps the lock of a job closed for at least the time splay after the
// job has started. Otherwise a host whose clock is a little late would find the lock of a fast job free
// again, and run the same tick a second time.
//
// The splay must be longer than the hosts differ in the start of a tick: the difference of their
// clocks, plus the time for which gocron queues a job (LimitModeWait). It must be shorter than the
// shortest interval between two ticks, or ticks are skipped. Hosts with a DurationJob count from
// their own start, so give them a common gocron.WithStartAt, or a splay that is nearly the interval.
//
// NewLocker returns an error that matches holdfast.ErrInvalid unless splay is above zero, and one that matches
// holdfast.ErrUnsupported if the store cannot keep names closed. The options
// apply to every lock. Wait and Retry are not possible, because a job is skipped if its lock is not free.
func NewLocker(c *holdfast.Client, splay time.Duration, opts ...holdfast.CallOption) (*Locker, error) {
	if err := store.CheckTime("splay", splay); err != nil {
		return nil, fmt.Errorf("holdfast: locker of gocron: %w", err)
	}
	if !c.Capabilities().Features.Has(store.FeatureKeep) {
		return nil, fmt.Errorf("holdfast: locker of gocron: %w: the store cannot keep names closed", holdfast.ErrUnsupported)
	}
	return &Locker{c: c, opts: append([]holdfast.CallOption{holdfast.MinHold(splay)}, opts...)}, nil
}

// Lock locks the name of a job, and does not wait. If it fails, the scheduler skips the tick, and
// passes the error to the event listener gocron.AfterLockError: holdfast.ErrHeld if another host
// runs the job or has just run it, and holdfast.ErrUnavailable if the store does not answer.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.c.TryLock(ctx, job, l.opts...)
	if err != nil {
		return nil, err
	}
	l.leases.Store(job, lease)
	return &lock{l, job, lease}, nil
}

// Context returns a context for the work of a job. It ends with parent, the context that gocron passes
// to the job, and with the lock: if that is lost, the cause matches holdfast.ErrLost. It carries the
// lease, so holdfast.TokenFrom returns the fencing token. If this Locker does not hold the lock of the
// job, the context has already ended, with a cause that matches holdfast.ErrNotHeld. Call it once, when the
// job begins: a job that has lost its lock could later get the context of the next run.
func (l *Locker) Context(parent context.Context, job string) context.Context {
	if lease, ok := l.leases.Load(job); ok {
		return lease.(*holdfast.Lease).Context(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	cancel(fmt.Errorf("holdfast: job %q: %w: call Context in the job, with its name", job, holdfast.ErrNotHeld))
	return ctx
}

// A lock is the lock of a job that runs.
type lock struct {
	l     *Locker
	job   string
	lease *holdfast.Lease
}

// Unlock is called when the job has ended, also on shutdown, with a context that has ended.
func (k *lock) Unlock(ctx context.Context) error {
	k.l.leases.CompareAndDelete(k.job, k.lease) // after a loss, the next run may have stored its lease
	return k.lease.Unlock(ctx)
}
