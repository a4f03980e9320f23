package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// campaignRetry never gives up: a candidate stays in the campaign while its store restarts.
var campaignRetry = Backoff(100*time.Millisecond, 5*time.Second)

// leaderPoll is how often Leaders asks: soon enough for a person or a cache, with little load.
const leaderPoll = time.Second

// Campaign waits to become the leader of a name and then calls lead. The context of lead is
// cancelled when the leadership is lost. Campaign then waits until lead has returned and
// campaigns again, until ctx ends. The leadership ends when lead returns.
//
// If lead returns while the client is the leader, Campaign returns its error, or nil. It returns
// the cause of ctx when ctx ended. Failures of the store are reported to the Observer and retried
// without limit, unless the option Retry says otherwise.
func (c *Client) Campaign(ctx context.Context, name string, lead func(ctx context.Context) error, opts ...CallOption) error {
	const op = "campaign"
	if lead == nil {
		return fail(op, name, errNilFunc)
	}
	for {
		cl := newCall(op, name, store.Exclusive)
		cl.retry, cl.standby = campaignRetry, true
		lease, err := c.take(ctx, &cl, opts)
		if err != nil {
			return err
		}
		err, lost := lease.run(ctx, lead)
		switch {
		case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || isLossOf(err, name)):
			return fail(op, name, context.Cause(ctx))
		case ctx.Err() != nil || lost == nil:
			return err
		case errors.Is(lost, ErrClosed):
			return joinLoss(op, name, lost, err)
		}
	}
}

// Leader returns the holder that leads under the name of a Campaign, or ErrNotHeld if none does.
func (c *Client) Leader(ctx context.Context, name string) (Holder, error) {
	info, err := c.Inspect(ctx, name)
	if err != nil {
		return Holder{}, err
	}
	if len(info.Holders) == 0 || info.Holders[0].State != store.Held {
		return Holder{}, fail("leader", name, fmt.Errorf("%w: there is no leader", ErrNotHeld))
	}
	return info.Holders[0], nil
}

// Leaders yields the current leader of a name, and then every change that it sees, until ctx
// ends. While there is no leader, the error matches ErrNotHeld. While the store fails, it matches
// ErrUnavailable. Leaders asks the store once a second and can miss a shorter leadership. Any
// other error, such as ErrInvalid or ErrClosed, ends it.
func (c *Client) Leaders(ctx context.Context, name string) iter.Seq2[Holder, error] {
	return func(yield func(Holder, error) bool) {
		var last Holder
		var lastErr error
		for first := true; ; first = false {
			leader, err := c.Leader(ctx, name)
			if permanent(err) {
				yield(leader, err)
				return
			}
			if ctx.Err() != nil {
				return
			}
			changed := leader.ID != last.ID || (err == nil) != (lastErr == nil) ||
				errors.Is(err, ErrNotHeld) != errors.Is(lastErr, ErrNotHeld)
			if (first || changed) && !yield(leader, err) {
				return
			}
			last, lastErr = leader, err
			if !sleep(ctx, leaderPoll) {
				return
			}
		}
	}
}
