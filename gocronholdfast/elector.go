package gocronholdfast

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast"
)

// An Elector is a gocron.Elector. Use it with gocron.WithDistributedElector. It asks the store
// nothing when a job is due, because it knows whether its lease is still valid.
//
// When the leader changes, the new leader may run a tick again that is not due yet by its clock; or no
// host leads at the time of a tick, and it is skipped. A job that the old leader still runs continues
// unless it uses [Elector.Context].
type Elector struct {
	c     *holdfast.Client
	name  string
	opts  []holdfast.CallOption
	lease atomic.Pointer[holdfast.Lease] // the current or last leadership
}

// NewElector returns an Elector that can lead under a name after its Campaign has begun.
func NewElector(c *holdfast.Client, name string, opts ...holdfast.CallOption) *Elector {
	return &Elector{c: c, name: name, opts: opts}
}

// Campaign leads under the name whenever no other instance does, until ctx ends, as the Campaign of a
// holdfast.Client does. Run it in a goroutine, and report its error: without a campaign no job runs. Wait
// for it on shutdown: when it has returned, another instance can lead.
func (e *Elector) Campaign(ctx context.Context) error {
	return e.c.Campaign(ctx, e.name, func(ctx context.Context) error {
		e.lease.Store(holdfast.LeaseFrom(ctx))
		<-ctx.Done()
		return context.Cause(ctx)
	}, e.opts...)
}

// IsLeader returns nil if this instance leads, and otherwise an error that matches
// holdfast.ErrNotHeld.
func (e *Elector) IsLeader(context.Context) error {
	if lease := e.lease.Load(); lease != nil && lease.Err() == nil {
		return nil
	}
	return fmt.Errorf("holdfast: elector %q: %w: this instance does not lead", e.name, holdfast.ErrNotHeld)
}

// Context returns a context for the work of a job. It ends with parent, the context that gocron passes
// to the job, and with the leadership: if that is lost, the cause matches holdfast.ErrLost. It carries
// the lease, so holdfast.TokenFrom returns the fencing token. If this instance does not lead, the context
// has already ended. Call cancel when the job has ended.
func (e *Elector) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, stop := context.WithCancelCause(parent)
	if lease := e.lease.Load(); lease != nil {
		ctx = lease.Context(ctx)
	} else {
		stop(e.IsLeader(parent))
	}
	return ctx, func() { stop(nil) }
}
