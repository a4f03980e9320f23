package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Once runs fn unless fn succeeded under this name less than keep ago, in any process. While
// another process runs fn, Once waits; with Wait(0) it returns ErrHeld. If fn fails or panics, or
// the lock is lost meanwhile, the name stays open. Leases that fn took with Reentrant end when fn
// returns. The result of fn is not kept: let fn write it where a caller that gets ErrDone finds it.
//
// Forget ends the record early, for example when the account that fn made is removed.
//
// Without a crash, fn succeeds once. If its process dies, or loses the lock, between the side
// effect of fn and the record that it is done, fn runs again: it runs at least once. To make the
// effect happen exactly once, let the resource recognize a repetition: by a unique key in the same
// transaction, or by refusing the lower of two fencing tokens (see TokenFrom).
//
// Once returns ErrDone if fn succeeded before, and the error of fn if it fails. It returns
// ErrLost, joined with the error of fn, if the lock was lost, and ErrUnavailable, or ErrClosed if the
// client was closed, if fn succeeded but that could not be recorded: in all these cases fn may run again.
func (c *Client) Once(ctx context.Context, name string, keep time.Duration, fn func(ctx context.Context) error, opts ...CallOption) (err error) {
	const op = "once"
	if fn == nil {
		return fail(op, name, errNilFunc)
	}
	if err := store.CheckTime("keep", keep); err != nil {
		return fail(op, name, err)
	}
	cl := newCall(op, name, store.Exclusive)
	cl.Once, cl.keep = true, keep
	lease, err := c.take(ctx, &cl, opts)
	if err != nil {
		return err
	}
	var done store.Keep // nothing if fn fails or panics
	defer func() {
		ended := lease.unlock(ctx, done, true)
		if done.State == store.Done {
			err = failIf(op, name, ended)
		} else if errors.Is(ended, ErrLost) {
			err = joinLoss(op, name, ended, err)
		}
	}()
	if err = fn(lease.Context(ctx)); err == nil {
		done = store.Keep{State: store.Done, For: keep}
	}
	return err
}
