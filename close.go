package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// closeTimeout bounds the work of Close if the store does not answer: a call in flight, and the
	// call that cancels it. The store's own Close comes after that, and takes two seconds.
	closeTimeout = bounded.CallTimeout + cancelTimeout

	// closeLimit bounds the work of Close if the store answers. Such a store closes at once.
	closeLimit = closeTimeout + 3*time.Second/2

	// closeAnswer is how long a store that answers may take for one release.
	closeAnswer = time.Second / 2
)

// Close ends all waits with ErrClosed, ends and releases all leases, cancels their contexts, waits for
// calls and background work in progress, and closes the store if Open opened it. It takes at most
// about 6 seconds: if the store does not answer, the locks expire with their TTL, and Close
// returns ErrUnavailable. A second Close does nothing.
func (c *Client) Close() error {
	if !c.life.Shut() {
		return nil
	}
	begin := c.now()
	var released atomic.Int64 // when the store last confirmed a release
	timeout := time.AfterFunc(closeTimeout, func() {
		for c.life.Work.Err() == nil && c.now()-begin < closeLimit && c.now()-time.Duration(released.Load()) < closeAnswer {
			select {
			case <-time.After(closeAnswer / 10):
			case <-c.life.Work.Done():
			}
		}
		c.life.End()
	})
	defer timeout.Stop()
	defer c.life.End()
	var ended []*hold
	// Report last, so that no lock is held longer because of the observer.
	defer func() {
		for _, h := range ended {
			h.reportEnd(h.event(EventReleased))
		}
	}()
	err := c.releaseAll(&ended, &released) // release before waiting, so that a hung call does not delay the release of other locks
	c.life.Wait()
	c.renewals.Close()
	err = errors.Join(err, c.releaseAll(&ended, &released)) // grants of calls that were in flight
	if c.owned {
		err = errors.Join(err, c.store.Close())
	}
	return failIf("close", "", err)
}

// releaseAll ends every hold, then releases every grant: work that holds several locks must not
// continue while another client has one of them. It adds the holds that it ended to ended if the
// client is observed. Released gets the time of the last release that the store confirmed.
func (c *Client) releaseAll(ended *[]*hold, released *atomic.Int64) error {
	var mine []*hold
	for _, g := range c.renewals.All() {
		h := c.renewals.Hold(g).(*hold)
		first := h.finish(h.named(fmt.Errorf("%w: the client was closed", ErrClosed)))
		// A hold that another call ended is released by that call, unless it was lost.
		if c.renewals.Withdraw(g, first) {
			mine = append(mine, h)
		}
		if first && c.observed() {
			*ended = append(*ended, h)
		}
	}
	ctx, cancel := context.WithCancel(c.life.Work)
	defer cancel()
	var failed atomic.Int64
	var last atomic.Pointer[error]
	inParallel(mine, func(h *hold) {
		begin := c.now()
		err := c.store.Release(ctx, bounded.CallTimeout, h.g.Name, h.g.ID, h.rest())
		if err != nil && !errors.Is(err, store.ErrNotHeld) {
			failed.Add(1)
			last.Store(&err)
			if c.now()-begin > bounded.CallTimeout/2 {
				cancel() // the store hangs, so the other releases would take as long
			}
		} else {
			released.Store(int64(c.now()))
		}
	})
	if n := failed.Load(); n > 0 {
		return unavailable(fmt.Sprintf("%d of %d locks not released; they expire with their TTL", n, len(mine)), *last.Load())
	}
	return nil
}
