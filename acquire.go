package holdfast

import (
	"context"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/store"
)

// acquire takes the lock for a call that was checked. It waits in the local queue. Then it either
// gets a grant that is handed over, or asks the store.
func (c *Client) acquire(ctx context.Context, cl *call) (h *hold, handed bool, err error) {
	for {
		out, w := c.queue.Join(&cl.Call)
		if w != nil {
			c.reportWaiting(ctx, cl)
			if cause := c.waitForTurn(ctx, cl, w); cause != nil {
				return nil, false, c.cancelWait(ctx, cl, w, cause)
			}
			out = c.queue.Collect(w)
		}
		switch {
		case out.Answer != nil:
			return nil, false, fail(cl.op, cl.name, c.answerError(cl, out.Answer))
		case out.Grant == nil:
			now := cl.Begin
			if cl.reported { // it has waited
				now = c.now()
			}
			h, err = c.acquireFromStore(ctx, cl, out.Turn, now)
			return h, false, err
		}
		h = new(hold)
		h.init(c, cl, out.Grant, out.Token, out.Since)
		if c.renewals.HandOver(out.Grant, h) {
			return h, true, nil
		}
		// The grant was lost after the hand-over, so another one is needed.
	}
}

// errNoTurn ends the wait of a single attempt for the call that has the turn.
var errNoTurn = unavailable("", bounded.ErrNoReply)

// waitForTurn waits in the local queue. It returns nil if the call was served, or why not.
func (c *Client) waitForTurn(ctx context.Context, cl *call, w *localqueue.Waiter) (cause error) {
	if cl.Try { // it does not wait for a holder
		limited, cancel := context.WithTimeoutCause(ctx, bounded.CallTimeout, errNoTurn)
		defer cancel()
		ctx = limited
	}
	select {
	case <-w.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.life.Closing.Done():
		return ErrClosed
	}
}

// cancelWait removes a call whose wait has ended from the local queue. If the call was served
// at the same moment, cancelWait releases the grant or ends the turn that it got.
func (c *Client) cancelWait(ctx context.Context, cl *call, w *localqueue.Waiter, cause error) error {
	out, signalled, obstacle := c.queue.Cancel(w)
	switch {
	case !signalled:
	case out.Grant != nil:
		obstacle = nil
		c.inBackground(func(ctx context.Context) { c.releaseGrant(ctx, out.Grant, store.Keep{}) })
	case out.Answer == nil:
		c.endTurn(out.Turn)
	}
	if obstacle != nil {
		return fail(cl.op, cl.name, c.waitError(cl, obstacle), cause)
	}
	return fail(cl.op, cl.name, cause)
}
