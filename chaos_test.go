package holdfast_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// chaos is a connection to a real store with random faults: slow requests and replies, lost
// replies, requests that arrive late, and lost or spurious wake-ups.
type chaos struct {
	*memstore.Store
	mu      sync.Mutex
	rng     *rand.Rand
	calm    *atomic.Bool // there are no more faults
	instant bool
	noQueue bool
	short   bool // no faults, but short grants for requests that queue
	level   int  // percent of faulty calls
}

func (p *chaos) n(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.IntN(n)
}

func (p *chaos) faulty() bool { return !p.calm.Load() && p.n(100) < p.level }

func (p *chaos) Capabilities() store.Capabilities {
	c := p.Store.Capabilities()
	c.Instant = p.instant
	if p.noQueue {
		c.Features &^= store.FeatureQueue
	}
	return c
}

func (p *chaos) nap(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// call runs do with a random fault.
func (p *chaos) call(ctx context.Context, do func(ctx context.Context) error) error {
	if !p.faulty() {
		if !p.instant {
			p.nap(ctx, time.Duration(p.n(3))*time.Millisecond)
		}
		return do(ctx)
	}
	bg := context.Background()
	d := time.Duration(p.n(3000)) * time.Millisecond
	switch p.n(7) {
	case 0: // slow request
		p.nap(ctx, d)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return do(ctx)
	case 1: // slow reply
		err := do(ctx)
		p.nap(ctx, d)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	case 2:
		return errNet
	case 3: // executed, reply lost
		do(bg)
		return errNet
	case 4: // hangs, not executed
		p.nap(ctx, 20*time.Second)
		return errNet
	case 5: // late arrival
		go func() { time.Sleep(d); do(bg) }()
		p.nap(ctx, 20*time.Second)
		return errNet
	default: // late arrival, quick error
		go func() { time.Sleep(d); do(bg) }()
		return errNet
	}
}

func (p *chaos) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if p.short && p.level == 0 && req.Queue && p.n(2) == 0 {
		req.TTL /= 3
	}
	return callFor(ctx, p, func(ctx context.Context) (store.Answer, error) { return p.Store.Acquire(ctx, req) })
}

// callFor is like call, for a function with a result. After an error, the function may go on.
func callFor[T any](ctx context.Context, p *chaos, do func(ctx context.Context) (T, error)) (none T, err error) {
	result := new(T)
	err = p.call(ctx, func(ctx context.Context) (err error) {
		*result, err = do(ctx)
		return err
	})
	if err != nil {
		return none, err
	}
	return *result, nil
}

func (p *chaos) Wait(ctx context.Context, name string, id store.ID) error {
	if p.faulty() {
		switch p.n(3) {
		case 0:
			p.nap(ctx, time.Millisecond)
			return nil
		case 1:
			return errNet
		default:
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return p.Store.Wait(ctx, name, id)
}

func (p *chaos) Leave(ctx context.Context, name string, id store.ID) error {
	return p.call(ctx, func(ctx context.Context) error { return p.Store.Leave(ctx, name, id) })
}

func (p *chaos) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	return p.call(ctx, func(ctx context.Context) error { return p.Store.Release(ctx, name, id, keep) })
}

func (p *chaos) Renew(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
	out, err := callFor(ctx, p, func(ctx context.Context) ([]store.Renewed, error) { return p.Store.Renew(ctx, g) })
	if err == nil && p.faulty() {
		for i := range out {
			if p.n(2) == 0 {
				out[i] = store.Renewed{}
			}
		}
	}
	return out, err
}
