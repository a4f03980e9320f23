package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/store"
)

// patience bounds how long Lock and Unlock keep trying if the store does not answer.
const patience = 5 * time.Second

var (
	errEnded  = errors.New("ended")   // the caller's context ended or the client was closed
	errGaveUp = errors.New("gave up") // the strategy allows no further call
)

func (a *attempt) countRefusal(r *store.Refusal) {
	now := a.c.now()
	// A store that wakes waiters for no reason must not make the client spin.
	if a.spins++; now-a.heldAt > leastRetryWait {
		a.spins = 0
	}
	a.failures, a.outage, a.reason, a.extended = 0, false, nil, false
	a.held, a.heldAt = newHeldError(a.name, r), now
}

// waitAfterRefusal waits until it is worth asking again. Other calls may wait for this turn.
func (a *attempt) waitAfterRefusal(ctx context.Context, r *store.Refusal) error {
	again := max(r.Again, leastRetryWait)
	if !a.Request.Queue || a.retrySet {
		wait, err := a.consult()
		if err != nil {
			return err
		}
		if !a.Request.Queue { // the store does not wake this request
			return a.pause(ctx, wait)
		}
		again = min(again, wait) // asking within Again keeps the place in the queue
	}
	if a.spins > 3 && !sleep(ctx, min(again, time.Duration(a.spins)*leastRetryWait)) {
		return errEnded
	}
	for end := a.c.now() + again; again > 0; again = end - a.c.now() {
		// A store that hangs wakes nobody. So if other calls have begun to wait behind this one, it
		// asks soon, and they learn in time that there is no reply.
		woken, err := a.waitInStore(ctx, min(again, hurriedWait))
		if woken || err != nil || a.turn.Joined() != a.joined {
			return err
		}
	}
	return nil
}

// hurriedWait bounds how long a call waits in the store after other calls have queued behind it.
const hurriedWait = time.Second

// waitInStore waits until the store wakes this request, or for d.
func (a *attempt) waitInStore(ctx context.Context, d time.Duration) (woken bool, err error) {
	waitCtx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	defer context.AfterFunc(a.c.life.Closing, cancel)()
	err = a.c.store.Wait(waitCtx, a.Request.Name, a.Request.ID)
	switch {
	case a.ended(ctx):
		return false, errEnded
	case err != nil && waitCtx.Err() == nil:
		a.sent = a.c.now() // the store may have been healthy for a long time before it failed
		return false, err
	}
	return err == nil, nil
}

func (a *attempt) ended(ctx context.Context) bool {
	return ctx.Err() != nil || a.c.life.Closing.Err() != nil
}

// consult returns how long to wait from now. It asks the strategy if the last wait is over.
func (a *attempt) consult() (time.Duration, error) {
	now := a.c.now()
	if a.waitEnd <= now && a.resumeAt <= now {
		a.counted++
		strategy := a.retry
		if !a.retrySet {
			strategy = pollRetry
		}
		wait, more := strategy.Next(a.counted, a.held)
		if !more {
			return 0, fmt.Errorf("%w after %d attempts", errGaveUp, a.counted)
		}
		a.waitEnd = now + min(max(wait, leastRetryWait), store.MaxTime) // the sum must not overflow
	}
	return max(a.waitEnd, a.resumeAt) - now, nil
}

// pollRetry paces the requests to stores without a queue.
var pollRetry = Backoff(10*time.Millisecond, pollMost)

const pollMost = 500 * time.Millisecond

// withReason adds the failure of an earlier call to the error of a call without a reply. The last
// call is often cut short, and its error would hide why the others failed.
func (a *attempt) withReason(err error) error {
	switch {
	case !errors.Is(err, bounded.ErrNoReply):
		a.reason = err
	case err != bounded.ErrNoReply && (a.reason == nil || errors.Is(a.reason, bounded.ErrNoReply)): // with details
		a.reason = err
	case a.reason != nil:
		return fmt.Errorf("%w; before that: %w", err, a.reason)
	}
	return err
}

// countFailure records a failure of the store. It returns how long to wait, how many attempts to
// report (with a strategy of the caller, how often it was asked), and whether to call again.
func (a *attempt) countFailure(failure error) (wait time.Duration, calls int, again bool) {
	a.failures++
	if !a.outage {
		a.outage, a.failing = true, a.sent
	}
	a.extended = false
	now := a.c.now()
	if a.retrySet && now < a.resumeAt { // the store was asked because other calls wait
		return a.resumeAt - now, a.counted, true
	}
	calls, strategy := a.failures, a.retry
	switch {
	case a.retrySet:
		if a.failures > 1 || a.waitEnd <= now { // otherwise the strategy has only chosen a wait for a holder
			a.counted++
		}
		calls = a.counted
	case strategy == nil:
		strategy = defaultRetry
	}
	wait, again = strategy.Next(calls, failure)
	if a.Try || a.retry == nil && now+wait >= a.failing+patience {
		again = false
	}
	wait = min(max(wait, leastRetryWait), store.MaxTime)
	if a.retrySet {
		a.resumeAt = now + wait
	}
	return wait, calls, again
}

// pause waits for d, or until it finds, every pollMost, that other calls wait behind this one.
func (a *attempt) pause(ctx context.Context, d time.Duration) error {
	for end := a.c.now() + d; d > 0; d = end - a.c.now() {
		select {
		case <-time.After(min(d, pollMost)):
		case <-ctx.Done():
			return errEnded
		case <-a.c.life.Closing.Done():
			return errEnded
		}
		if a.turn.Waiting() {
			return nil
		}
	}
	return nil
}
