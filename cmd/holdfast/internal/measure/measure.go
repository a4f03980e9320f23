// Package measure measures how fast locks are on a store, from this host.
package measure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// Options bound the load.
type Options struct {
	Time       time.Duration // of each measurement
	Goroutines int
}

// A Result is one figure.
type Result struct {
	ID    string  `json:"id"`
	Text  string  `json:"text"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Limit float64 `json:"limit,omitempty"` // the same figure for plain calls to the store, in the same unit; 0 if unknown
}

const (
	prefix  = "holdfast:bench:" // of all scratch names
	owner   = "holdfast bench"
	settle  = 5               // a load runs for a fifth of its time before it counts
	cleanUp = 5 * time.Second // limits how long undoing a failed call may take
)

type run struct {
	Options
	store   store.Store
	prefix  string
	a, b    *holdfast.Client
	waiting chan struct{} // has a value after a call of b has begun to wait
	failed  error         // of a load
}

// Run measures two connections to one server with scratch names, of which it leaves nothing behind.
func Run(ctx context.Context, a, b store.Store, opts Options) (results []Result, err error) {
	r := &run{Options: opts, store: a, prefix: prefix + rand.Text() + ":", waiting: make(chan struct{}, 1)}
	observe := holdfast.WithObserver(func(e holdfast.Event) {
		if e.Kind == holdfast.EventWaiting {
			r.waiting <- struct{}{} // has room: handOffs receives the value before the next call of b
		}
	})
	if r.a, err = holdfast.New(a, holdfast.WithPrefix(r.prefix), holdfast.WithOwner(owner)); err != nil {
		return nil, err
	}
	defer r.a.Close()
	if r.b, err = holdfast.New(b, holdfast.WithPrefix(r.prefix), holdfast.WithOwner(owner), observe); err != nil {
		return nil, err
	}
	defer r.b.Close()

	many := fmt.Sprintf("%d goroutines", r.Goroutines)
	trips, limit := r.load(ctx, 1, r.calls)
	_, limitMany := r.load(ctx, r.Goroutines, r.calls)
	_, one := r.load(ctx, 1, r.pair)
	_, pairs := r.load(ctx, r.Goroutines, r.pair)
	_, hot := r.load(ctx, r.Goroutines, func(ctx context.Context, _ int) error { return r.pair(ctx, -1) })
	if r.failed != nil {
		return nil, r.failed
	}
	took, err := r.handOffs(ctx)
	if err != nil {
		return nil, err
	}
	return []Result{
		{"round-trip.p50", "round trip, p50", milliseconds(trips, 50) / 2, "ms", 0},
		{"round-trip.p99", "round trip, p99", milliseconds(trips, 99) / 2, "ms", 0},
		{"pairs.one", "lock and unlock, 1 goroutine", one, "pairs/s", limit},
		{"pairs.many", "lock and unlock, " + many, pairs, "pairs/s", limitMany},
		{"pairs.hot", "on one name, " + many, hot, "pairs/s", 0},
		{"hand-off.p50", "hand-off to another client, p50", milliseconds(took, 50), "ms", 0},
		{"hand-off.p99", "hand-off to another client, p99", milliseconds(took, 99), "ms", 0},
	}, nil
}

// calls makes the store calls of one lock and one unlock, without the core of Holdfast. Locks on
// this store can only be faster by chance or by hand-overs.
func (r *run) calls(ctx context.Context, i int) error {
	req := store.Request{
		Name: fmt.Sprint(r.prefix, "calls", i), ID: store.NewID(), Mode: store.Exclusive, Weight: 1,
		TTL: holdfast.DefaultTTL, Tokens: 1, Owner: owner,
	}
	if most := r.store.Capabilities().MaxTTL; most > 0 {
		req.TTL = min(req.TTL, most)
	}
	answer, err := r.store.Acquire(ctx, req)
	if err == nil && !answer.Granted() {
		err = errors.New("the store refused a name that nobody else uses")
	}
	if err == nil {
		err = r.store.Release(ctx, req.Name, req.ID, store.Keep{})
	}
	if err != nil { // the outcome of a call that failed is unknown
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		r.store.Leave(ctx, req.Name, req.ID)
	}
	return err
}

func (r *run) pair(ctx context.Context, i int) error {
	lease, err := r.a.Lock(ctx, fmt.Sprint("pair", i))
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// load calls do from n goroutines for the time of a measurement, at least once from each, and returns
// the sorted times of the calls and their number per second. It does nothing after a failure.
func (r *run) load(ctx context.Context, n int, do func(context.Context, int) error) (took []time.Duration, rate float64) {
	if r.failed != nil {
		return nil, 0
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	start := time.Now().Add(r.Time / settle)
	end := start.Add(r.Time)
	for i := range n {
		wg.Go(func() {
			var mine []time.Duration
			for ctx.Err() == nil {
				begin := time.Now()
				if begin.After(end) && len(mine) > 0 {
					break
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
					break
				}
				if !begin.Before(start) {
					mine = append(mine, time.Since(begin))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, mine...)
		})
	}
	wg.Wait()
	r.failed = context.Cause(ctx)
	rate = float64(len(took)) / time.Since(start).Seconds()
	slices.Sort(took)
	return took, rate
}

// handOffs measures the time from an unlock until a waiting client has the lock.
func (r *run) handOffs(ctx context.Context) (took []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for end := time.Now().Add(r.Time); len(took) == 0 || time.Now().Before(end); {
		lease, err := r.a.Lock(ctx, "hand-off")
		if err != nil {
			return nil, err
		}
		var next *holdfast.Lease
		var at time.Time
		done := make(chan error, 1)
		go func() {
			var err error
			next, err = r.b.Lock(ctx, "hand-off")
			at = time.Now()
			done <- err
		}()
		select {
		case <-r.waiting:
		case err := <-done:
			return nil, errors.Join(errors.New("a second client did not wait for a lock that is held"), err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		begin := time.Now()
		if err := lease.Unlock(ctx); err != nil {
			return nil, err
		}
		if err := <-done; err != nil {
			return nil, err
		}
		took = append(took, at.Sub(begin))
		if err := next.Unlock(ctx); err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return took, nil
}

// milliseconds returns the p-th percentile of sorted durations.
func milliseconds(sorted []time.Duration, p int) float64 {
	return float64(sorted[min(len(sorted)-1, len(sorted)*p/100)]) / float64(time.Millisecond)
}
