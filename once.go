package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Once runs fn unless it was run with success under this name in the last keep, by any
// process. While another one runs it, Once waits for it; with Wait(0) it returns ErrHeld
// instead. If fn fails or panics, or the lock is lost while it runs, the name stays open
// for the next.
//
// Errors: ErrDone if it was done before; fn's own; ErrLost together with fn's own if the
// lock was lost, ErrUnavailable if fn succeeded but that could not be noted: in both
// cases it may run again; and those of Lock.
func (c *Client) Once(ctx context.Context, name string, keep time.Duration, fn func(ctx context.Context) error, opts ...CallOption) error {
	const op = "once"
	if fn == nil {
		return fail(op, name, errNilFunc)
	}
	if err := store.CheckTime("keep", keep); err != nil {
		return fail(op, name, err)
	}
	cl := lockCall(op, name)
	cl.once = true
	lease, err := c.take(ctx, &cl, opts)
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished { // fn panicked
			lease.Unlock(ctx)
		}
	}()
	err = fn(lease.Context(ctx))
	finished = true
	if err != nil {
		if unlockErr := lease.Unlock(ctx); errors.Is(unlockErr, ErrLost) {
			return errors.Join(err, unlockErr)
		}
		return err
	}
	return lease.unlock(ctx, store.Keep{State: store.Done, For: keep})
}
