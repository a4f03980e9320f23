package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// closeTimeout bounds how long Close takes with a store that does not answer: one call that
// is under way, and one to clean up after it.
const closeTimeout = 2 * callTimeout

// workers is how many calls a clean-up of many grants has under way at once.
const workers = 32

// Close ends all waits with ErrClosed, ends and releases all leases, waits for calls and
// background work that are under way, and closes the store if Open made it. Contexts made
// from leases are cancelled. It is bounded: if the store does not answer, its locks free
// themselves and the error says so. A second Close does nothing.
func (c *Client) Close() error {
	if !c.calls.shut() {
		return nil
	}
	timeout := time.AfterFunc(closeTimeout, c.stop)
	defer timeout.Stop()
	defer c.stop()
	if c.set.logger != nil {
		defer func() {
			for kind := range c.warnings {
				c.warnings[kind].flush(c.set.logger, EventKind(kind))
			}
		}()
	}
	c.end()
	err := c.releaseAll() // at once: a call that hangs must not cost the other locks
	c.calls.wait(c.work)
	c.renewals.shut()
	err = errors.Join(err, c.releaseAll()) // what those calls were granted
	if c.owned {
		err = errors.Join(err, c.store.Close())
	}
	if err != nil {
		return fail("close", "", err)
	}
	return nil
}

// releaseAll ends every lease, then releases every grant. All end before any is released:
// work under several locks must not see one of them taken first.
func (c *Client) releaseAll() error {
	var mine []*grant
	for _, g := range c.renewals.all() {
		// A lease that somebody else ended is his to release, unless it was lost.
		l := g.lease.Load()
		ended := l.finish(l.named(fmt.Errorf("%w: the client was closed", ErrClosed)))
		if c.renewals.withdraw(g, ended) {
			mine = append(mine, g)
		}
		if ended && c.observed() {
			c.emit(l.event(EventReleased))
		}
	}
	ctx, cancel := context.WithTimeout(c.work, callTimeout)
	defer cancel()
	var failed atomic.Int64
	var last atomic.Pointer[error]
	inParallel(mine, func(g *grant) {
		err := c.releaseOnce(ctx, callTimeout, g, g.lease.Load().rest())
		if err != nil && !errors.Is(err, store.ErrNotHeld) {
			failed.Add(1)
			last.Store(&err)
		}
	})
	if n := failed.Load(); n > 0 {
		return unavailable(fmt.Sprintf("%d of %d locks not released, they free themselves after their TTL", n, len(mine)), *last.Load())
	}
	return nil
}

// inParallel calls do for each grant, some at a time, and returns when all are through.
func inParallel(grants []*grant, do func(*grant)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(workers, len(grants)) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(len(grants)); i = next.Add(1) {
				do(grants[i-1])
			}
		})
	}
	wg.Wait()
}

// calls counts what is under way, so that Close can keep new calls out and wait for the
// old ones. It is one atomic add on the way in and one on the way out.
type calls struct {
	n    atomic.Int64 // shut adds shutBias: then negative
	idle chan struct{}
	once sync.Once
}

const shutBias = math.MinInt64 / 2

// enter reports whether the call may go on; if so, leave must follow.
func (c *calls) enter() bool {
	if c.n.Add(1) > 0 {
		return true
	}
	c.leave()
	return false
}

func (c *calls) leave() {
	if c.n.Add(-1) == shutBias {
		c.once.Do(func() { close(c.idle) })
	}
}

// shut keeps new calls out. It is false if that was done before.
func (c *calls) shut() bool {
	for {
		n := c.n.Load()
		if n < 0 {
			return false
		}
		if c.n.CompareAndSwap(n, n+shutBias) {
			if n == 0 {
				c.once.Do(func() { close(c.idle) })
			}
			return true
		}
	}
}

// wait returns when all calls have left, or when ctx ends.
func (c *calls) wait(ctx context.Context) {
	select {
	case <-c.idle:
	case <-ctx.Done():
	}
}

// background runs fn on its own goroutine, which Close waits for. The caller must be a
// call that has entered.
func (c *Client) background(fn func(ctx context.Context)) {
	c.calls.n.Add(1)
	go func() {
		defer c.calls.leave()
		fn(c.work)
	}()
}
