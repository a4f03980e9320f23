package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// releaseGrant hands a grant over to the next call of this client, or releases it to the store.
func (c *Client) releaseGrant(ctx context.Context, g *renewal.Grant, keep store.Keep) error {
	begin := c.now()
	turn, handed := c.queue.Release(ctx, g, keep == store.Keep{})
	if handed {
		return nil
	}
	c.renewals.Remove(g)
	err := c.release(ctx, g, keep, begin)
	if !turn.IsZero() && errors.Is(err, ErrUnavailable) {
		turn.Answered(localqueue.Answer{At: c.now(), Failure: err, Since: begin})
	}
	switch {
	case turn.IsZero():
		c.queue.ForgetRefusal(g.Name)
	case !c.caps.Features.Wakes() && turn.Waiting():
		// This store does not wake waiters, so give other processes time to find the name free.
		time.AfterFunc(min(c.set.handoverSlice/5, pollMost), func() { c.endTurn(turn) })
	default:
		c.endTurn(turn)
	}
	return err
}

// release releases a grant to the store. While the outcome is unknown it retries until patience has
// passed since begin, and then in the background. Ctx must not end with the caller's context.
func (c *Client) release(ctx context.Context, g *renewal.Grant, keep store.Keep, begin time.Duration) error {
	end := min(begin+patience, g.Expiry())
	unknown, last := false, false
	limit := begin + patience - c.now() // a hand-over may have used up some of the time
	for attempt := 1; ; attempt++ {
		err := c.store.Release(ctx, limit, g.Name, g.ID, c.rest(g, keep))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrNotHeld) && unknown:
			return c.checkKept(ctx, g, keep, begin+patience) // an earlier attempt released it, or it expired
		case errors.Is(err, store.ErrNotHeld):
			return errGone
		case permanent(err):
			if keep != (store.Keep{}) { // the store refused the Keep, so the name is still held
				c.store.Release(ctx, begin+patience-c.now(), g.Name, g.ID, store.Keep{})
			}
			return err
		case last:
			return unavailable("client closed before release; the lock expires with its TTL", err)
		}
		unknown = true
		if c.observed() {
			e := c.renewals.Hold(g).(*hold).event(EventError)
			e.Attempt, e.Err = attempt, unavailable("release", err)
			c.emit(e)
		}
		wait, _ := cleanUpRetry.Next(attempt, err)
		now := c.now()
		limit = end - now - wait
		if limit <= 0 {
			left := g.Expiry() - now
			c.life.Go(func(ctx context.Context) {
				c.persist(ctx, left, func(ctx context.Context) error {
					return c.store.Release(ctx, bounded.CallTimeout, g.Name, g.ID, c.rest(g, keep))
				})
			})
			return unavailable(fmt.Sprintf("release failed after %d attempts; the lock expires in %s", attempt, short(max(0, left))), err)
		}
		last = !sleep(c.life.Closing, wait) // Close waits for one more attempt
	}
}

// rest returns the Keep of a release now: MinHold also passes while the store does not reply.
func (c *Client) rest(g *renewal.Grant, keep store.Keep) store.Keep {
	if keep.State == store.Cooling {
		return c.renewals.Hold(g).(*hold).rest()
	}
	return keep
}

// checkKept finds out, after lost replies, whether a Keep took effect: for Once, if it is done.
func (c *Client) checkKept(ctx context.Context, g *renewal.Grant, keep store.Keep, end time.Duration) error {
	if c.rest(g, keep) == (store.Keep{}) || !c.caps.Features.Has(store.FeatureList) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, end-c.now())
	defer cancel()
	page, err := c.store.List(ctx, store.Query{Name: g.Name})
	if err != nil {
		return unavailable("not known whether the name is kept closed", err)
	}
	kept := func(h Holder) bool { return h.ID == g.ID && h.State == keep.State }
	if len(page.Locks) > 0 && slices.ContainsFunc(page.Locks[0].Holders, kept) ||
		c.rest(g, keep) == (store.Keep{}) { // the record has ended meanwhile
		return nil
	}
	return errGone
}
