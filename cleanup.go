package holdfast

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/internal/core/renewal"
	"github.com/holdfast-lock/holdfast/store"
)

// endTurn gives the turn to the next call, after it has cancelled a ticket that no call can use.
func (c *Client) endTurn(t localqueue.Turn) {
	if unused := t.End(); unused != nil {
		c.cancelRequest(unused, func() { c.endTurn(t) })
	}
}

// cancelTimeout bounds the first attempt to cancel a request, for which the next calls wait.
const cancelTimeout = time.Second

// cancelRequest removes in the background what the store may have recorded for a request: a place
// in the queue, or a grant whose reply was lost. It calls then after the first attempt.
func (c *Client) cancelRequest(req *store.Request, then func()) {
	name, id, ttl := req.Name, req.ID, req.TTL
	c.inBackground(func(ctx context.Context) {
		err := c.store.Leave(ctx, cancelTimeout, name, id)
		then()
		if err != nil && !permanent(err) {
			c.persist(ctx, ttl, func(ctx context.Context) error {
				return c.store.Leave(ctx, bounded.CallTimeout, name, id)
			})
		}
	})
}

// inBackground ends what a call that has given up leaves in the store. The call does not wait for it,
// unless no call to the store blocks: a name in memory is free when the call returns.
func (c *Client) inBackground(do func(ctx context.Context)) {
	if c.caps.Instant {
		do(context.Background())
		return
	}
	c.life.Go(do)
}

// removeAll removes grants from the store. Each attempt is for all of them that are left, so that a
// grant that fails again and again does not delay the others.
func (c *Client) removeAll(ctx context.Context, grants []*renewal.Grant) {
	longest := slices.MaxFunc(grants, func(a, b *renewal.Grant) int { return cmp.Compare(a.TTL, b.TTL) }).TTL
	c.persist(ctx, longest, func(ctx context.Context) (err error) {
		var mu sync.Mutex
		var left []*renewal.Grant
		inParallel(grants, func(g *renewal.Grant) {
			failure := c.store.Leave(ctx, bounded.CallTimeout, g.Name, g.ID)
			if failure != nil && !permanent(failure) {
				mu.Lock()
				defer mu.Unlock()
				left, err = append(left, g), failure
			}
		})
		grants = left
		return err
	})
}

// persist repeats a clean-up until it succeeds, limit has passed (nothing is left), or ctx ends.
func (c *Client) persist(ctx context.Context, limit time.Duration, clean func(context.Context) error) {
	end := c.now() + limit
	last := false
	for attempt := 1; ; attempt++ {
		err := clean(ctx)
		if err == nil || errors.Is(err, store.ErrNotHeld) || permanent(err) {
			return
		}
		wait, _ := cleanUpRetry.Next(attempt, err)
		if c.now()+wait >= end || ctx.Err() != nil || last {
			return
		}
		last = !sleep(c.life.Closing, wait) // Close waits for one more attempt
	}
}

// cleanUpRetry paces releases and clean-ups, so as not to flood a server that has just come back.
var cleanUpRetry = Backoff(20*time.Millisecond, time.Second)

// sleep reports whether the time passed before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// detach returns a context for calls that must be made although ctx may have ended.
func detach(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	if ctx.Done() == nil {
		return ctx // avoids an allocation
	}
	return context.WithoutCancel(ctx)
}

// workers is how many calls to the store inParallel has in flight at once.
const workers = 64

// inParallel calls do for each item, on up to workers goroutines, and returns when all are done.
func inParallel[T any](items []T, do func(T)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(workers, len(items)) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(len(items)); i = next.Add(1) {
				do(items[i-1])
			}
		})
	}
	wg.Wait()
}
