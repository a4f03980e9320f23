package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// campaignRetry never gives up: a candidate outlives its store's restarts.
var campaignRetry = Backoff(100*time.Millisecond, 5*time.Second)

// leaderPoll is how often Leaders looks: often enough for a person or a cache, rarely enough
// to cost the store nothing.
const leaderPoll = time.Second

// Campaign waits to become the leader of a name and then calls lead, whose context lives
// as long as the leadership. If it is lost, Campaign waits until lead has returned and
// campaigns again, for as long as ctx lives. It resigns when lead returns.
//
// It returns lead's error, or nil, when lead returns as the leader; context.Cause(ctx) when
// ctx ended; and the errors of Lock that waiting does not mend. Failures of the store are
// told to the Observer and are tried again without an end, unless Retry says otherwise.
func (c *Client) Campaign(ctx context.Context, name string, lead func(ctx context.Context) error, opts ...CallOption) error {
	const op = "campaign"
	if lead == nil {
		return fail(op, name, errNilFunc)
	}
	for {
		cl := lockCall(op, name)
		cl.retry = campaignRetry
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

// Leader returns the holder that leads under the name of a Campaign.
//
// It returns ErrNotHeld if nobody leads, ErrUnavailable if the store does not answer,
// ErrUnsupported if it cannot list locks, ErrInvalid for a bad name and ErrClosed after Close.
func (c *Client) Leader(ctx context.Context, name string) (Holder, error) {
	info, err := c.Inspect(ctx, name)
	if err != nil {
		return Holder{}, err
	}
	if len(info.Holders) == 0 || info.Holders[0].State != store.Held {
		return Holder{}, fail("leader", name, fmt.Errorf("%w: nobody leads", ErrNotHeld))
	}
	return info.Holders[0], nil
}

// Leaders yields the leader of a name now, and then every change that it sees, until ctx
// ends. While nobody leads, the error matches ErrNotHeld; while the store fails, it matches
// ErrUnavailable. It looks once a second and can miss a shorter leadership.
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
