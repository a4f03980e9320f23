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

// closeTimeout bounds how long Close waits for a store that does not answer.
const closeTimeout = 5 * time.Second

// closeWorkers is how many releases Close has under way at once, so that a client with
// many leases closes soon.
const closeWorkers = 32

// Close ends all waits with ErrClosed, ends and releases all leases, waits for background
// work, and closes the store if Open made it. Contexts made from leases are cancelled. It
// is bounded: if the store does not answer, its locks free themselves and the error says
// so. A second Close does nothing.
func (c *Client) Close() error {
	if !c.calls.shut() {
		return nil
	}
	timeout := time.AfterFunc(closeTimeout, c.stop)
	defer timeout.Stop()
	defer c.stop()
	c.end()
	c.calls.wait(c.work)
	err := c.releaseAll()
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
	grants := c.renewals.drain()
	for _, g := range grants {
		if l := g.lease.Load(); l.finish(fmt.Errorf("%w: the client was closed", ErrClosed)) && c.observed() {
			c.emit(l.event(EventReleased))
		}
	}
	var (
		wg     sync.WaitGroup
		next   atomic.Int64
		failed atomic.Int64
		last   atomic.Pointer[error]
	)
	for range min(closeWorkers, len(grants)) {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(len(grants)) {
					return
				}
				err := c.releaseOnce(c.work, grants[i], store.Keep{})
				if err != nil && !errors.Is(err, store.ErrNotHeld) {
					failed.Add(1)
					last.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 0 {
		return &unavailableError{fmt.Sprintf("%d of %d locks not released, they free themselves after their TTL", n, len(grants)), *last.Load()}
	}
	return nil
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

// background runs fn on its own goroutine, which Close waits for. Work that comes after
// Close is dropped: TTLs cover it.
func (c *Client) background(fn func(ctx context.Context)) {
	if !c.calls.enter() {
		return
	}
	go func() {
		defer c.calls.leave()
		fn(c.work)
	}()
}
