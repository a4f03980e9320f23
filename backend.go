package holdfast

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/core/lifetime"
	"github.com/holdfast-lock/holdfast/store"
)

// A backend is the store together with the state that the client's calls to it share: time
// limits, the client's lifetime and its clock.
type backend struct {
	store *bounded.Store
	life  lifetime.Lifetime
	base  time.Time // zero of the clock
}

// now is the time on the client's own monotonic clock, from which all deadlines count.
func (b *backend) now() time.Duration { return time.Since(b.base) }

// leaveTimeout bounds the first attempt to cancel a request in the store. The next calls of
// this client for the same name wait for it.
const leaveTimeout = time.Second

// cancelRequest removes in the background whatever the store may have recorded for a request:
// a place in the queue, or a grant whose reply was lost. It calls then after the first
// attempt.
func (b *backend) cancelRequest(req *store.Request, then func()) {
	name, id, ttl := req.Name, req.ID, req.TTL
	if b.store.Caps.Instant {
		b.store.Leave(context.Background(), leaveTimeout, name, id)
		then()
		return
	}
	b.life.Go(func(ctx context.Context) {
		err := b.store.Leave(ctx, leaveTimeout, name, id)
		then()
		if err != nil && !permanent(err) {
			b.leave(ctx, name, id, ttl)
		}
	})
}

// leave removes an identity from the store.
func (b *backend) leave(ctx context.Context, name string, id store.ID, ttl time.Duration) {
	b.persist(ctx, ttl, func(ctx context.Context) error {
		return b.store.Leave(ctx, bounded.CallTimeout, name, id)
	})
}

// persist repeats a clean-up until it succeeds, limit has passed (after which the store has
// nothing left to clean up), or ctx ends.
func (b *backend) persist(ctx context.Context, limit time.Duration, clean func(context.Context) error) {
	end := b.now() + limit
	last := false
	for attempt := 1; ; attempt++ {
		err := clean(ctx)
		if err == nil || errors.Is(err, store.ErrNotHeld) || permanent(err) {
			return
		}
		wait, _ := cleanUpRetry.Next(attempt, err)
		if b.now()+wait >= end || ctx.Err() != nil || last {
			return
		}
		last = !sleep(b.life.Closing, wait) // Close waits for one more attempt
	}
}

// cleanUpRetry paces the attempts of releases and clean-ups. Retrying at once after a timeout
// would flood a server that has just come back.
var cleanUpRetry = Backoff(20*time.Millisecond, time.Second)

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

// workers is how many calls to the store inParallel has in flight at once.
const workers = 32

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
