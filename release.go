package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// releaseRetry paces the attempts of clean-ups: at once after a timeout would be a storm
// when a server comes back.
var releaseRetry = Backoff(20*time.Millisecond, time.Second)

// release gives a grant back to the store. It retries for up to patience while the outcome
// is unknown, and then goes on in the background. Ctx must be detached from the caller's.
func (c *Client) release(ctx context.Context, g *grant, keep store.Keep) error {
	begin, end := c.now(), time.Duration(0)
	unknown := false
	limit := callTimeout
	for attempt := 1; ; attempt++ {
		err := c.releaseOnce(ctx, limit, g, keep)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, store.ErrNotHeld) && unknown:
			return c.checkKept(ctx, g, keep) // an earlier attempt did it, or it expired
		case errors.Is(err, store.ErrNotHeld):
			return errGone
		case permanent(err):
			return err
		}
		unknown = true
		if c.observed() {
			e := g.lease.Load().event(EventError)
			e.Attempt, e.Err = attempt, unavailable("release", err)
			c.emit(e)
		}
		wait, _ := releaseRetry.Next(attempt, err)
		now := c.now()
		if attempt == 1 {
			end = min(begin+patience, g.expiry())
		}
		limit = end - now - wait
		if limit <= 0 {
			left := g.expiry() - now
			c.background(func(ctx context.Context) {
				c.persist(ctx, left, func(ctx context.Context) error { return c.store.Release(ctx, g.name, g.id, keep) })
			})
			return unavailable(fmt.Sprintf("not released in %d attempts, it frees itself in %s", attempt, short(max(0, left))), err)
		}
		if !sleep(c.life, wait) {
			return unavailable("closed before it was released, it frees itself", err)
		}
	}
}

func (c *Client) releaseOnce(ctx context.Context, limit time.Duration, g *grant, keep store.Keep) error {
	callCtx, cancel := c.bound(ctx, limit)
	defer cancel()
	return noReply(ctx, callCtx, c.store.Release(callCtx, g.name, g.id, keep))
}

// checkKept finds out after lost answers whether a Keep took effect: for Once it is the
// difference between done and to be done again.
func (c *Client) checkKept(ctx context.Context, g *grant, keep store.Keep) error {
	if keep.State == store.Held || !c.caps.Features.Has(store.FeatureList) {
		return nil
	}
	callCtx, cancel := c.bound(ctx, callTimeout)
	defer cancel()
	page, err := c.store.List(callCtx, store.Query{Name: g.name})
	if err != nil {
		return unavailable("not known whether the name is kept closed", err)
	}
	for _, lock := range page.Locks {
		for _, h := range lock.Holders {
			if h.ID == g.id && h.State == keep.State {
				return nil
			}
		}
	}
	return errGone
}

// persist repeats a clean-up until it succeeds or nothing can be left to clean up: after
// that time, or when ctx ends.
func (c *Client) persist(ctx context.Context, limit time.Duration, clean func(context.Context) error) {
	end := c.now() + limit
	last := false
	for attempt := 1; ; attempt++ {
		callCtx, cancel := c.bound(ctx, callTimeout)
		err := clean(callCtx)
		cancel()
		if err == nil || errors.Is(err, store.ErrNotHeld) || permanent(err) {
			return
		}
		wait, _ := releaseRetry.Next(attempt, err)
		if c.now()+wait >= end || ctx.Err() != nil || last {
			return
		}
		last = !sleep(c.life, wait) // Close waits for one more attempt
	}
}

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
