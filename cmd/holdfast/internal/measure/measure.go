// Package measure measures how fast locks are on a store, from this host.
package measure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// Units of results.
const (
	Milliseconds = "ms"
	Pairs        = "pairs/s" // a lock and its unlock
)

// A Result is one figure.
type Result struct {
	ID    string  `json:"id"`
	Text  string  `json:"text"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Limit float64 `json:"limit,omitempty"` // the same figure for plain calls to the store, in the same unit; 0 if unknown
}

// Steps is the number of measurements of Run.
const Steps = 6

// settle is the fraction of a measurement, one fifth, for which a load runs before it counts.
const settle = 5

// cleanUp limits how long undoing a failed call may take.
const cleanUp = 5 * time.Second

// prefix is the prefix of all scratch names.
const prefix = "holdfast:bench:"

// Run measures two stores that are connections to the same server. It calls progress before each
// measurement. It uses scratch names, and leaves nothing behind, even if it fails.
func Run(ctx context.Context, a, b store.Store, opts Options, progress func(step int, text string)) ([]Result, error) {
	r := &run{Options: opts, store: a, prefix: prefix + rand.Text() + ":", waiting: make(chan struct{}, 1), progress: progress}
	observe := holdfast.WithObserver(func(e holdfast.Event) {
		if e.Kind == holdfast.EventWaiting {
			select {
			case r.waiting <- struct{}{}:
			default:
			}
		}
	})
	var err error
	if r.a, err = holdfast.New(a, holdfast.WithPrefix(r.prefix), holdfast.WithOwner("holdfast bench")); err != nil {
		return nil, err
	}
	defer r.a.Close()
	if r.b, err = holdfast.New(b, holdfast.WithPrefix(r.prefix), holdfast.WithOwner("holdfast bench"), observe); err != nil {
		return nil, err
	}
	defer r.b.Close()
	if err := r.measure(ctx); err != nil {
		return r.results, err
	}
	return r.results, r.leftovers(ctx)
}

type run struct {
	Options
	store    store.Store
	prefix   string
	a, b     *holdfast.Client
	waiting  chan struct{} // has a value after a call of b has begun to wait
	progress func(int, string)
	results  []Result
}

func (r *run) add(id, text string, value float64, unit string, limit float64) {
	r.results = append(r.results, Result{id, text, value, unit, limit})
}

func (r *run) measure(ctx context.Context) error {
	many := fmt.Sprintf("%d goroutines", r.Goroutines)
	r.progress(1, "calls of one goroutine")
	trips, limit, err := r.load(ctx, 1, r.calls)
	if err != nil {
		return err
	}
	r.add("round-trip.p50", "round trip, p50", milliseconds(quantile(trips, 50))/2, Milliseconds, 0)
	r.add("round-trip.p99", "round trip, p99", milliseconds(quantile(trips, 99))/2, Milliseconds, 0)

	r.progress(2, "calls of "+many)
	_, limitMany, err := r.load(ctx, r.Goroutines, r.calls)
	if err != nil {
		return err
	}

	r.progress(3, "locks of one goroutine")
	_, pairs, err := r.load(ctx, 1, r.pair)
	if err != nil {
		return err
	}
	r.add("pairs.one", "lock and unlock, 1 goroutine", pairs, Pairs, limit)

	r.progress(4, "locks of "+many)
	if _, pairs, err = r.load(ctx, r.Goroutines, r.pair); err != nil {
		return err
	}
	r.add("pairs.many", "lock and unlock, "+many, pairs, Pairs, limitMany)

	r.progress(5, "one lock of "+many)
	if _, pairs, err = r.load(ctx, r.Goroutines, func(ctx context.Context, _ int) error { return r.pair(ctx, -1) }); err != nil {
		return err
	}
	r.add("pairs.hot", "on one name, "+many, pairs, Pairs, 0)

	r.progress(6, "hand-off")
	took, err := r.handOffs(ctx)
	if err != nil {
		return err
	}
	r.add("hand-off.p50", "hand-off to another client, p50", milliseconds(quantile(took, 50)), Milliseconds, 0)
	r.add("hand-off.p99", "hand-off to another client, p99", milliseconds(quantile(took, 99)), Milliseconds, 0)
	return nil
}

// calls makes the store calls of one lock and one unlock, without the core of Holdfast. Locks on
// this store can only be faster by chance or by hand-overs.
func (r *run) calls(ctx context.Context, i int) error {
	req := store.Request{
		Name: fmt.Sprint(r.prefix, "calls", i), ID: store.NewID(), Mode: store.Exclusive, Weight: 1,
		TTL: holdfast.DefaultTTL, Tokens: 1, Owner: "holdfast bench",
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

// pair locks and unlocks a name.
func (r *run) pair(ctx context.Context, i int) error {
	lease, err := r.a.Lock(ctx, fmt.Sprint("pair", i))
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// load calls do from n goroutines for the time of a measurement, at least once from each. It
// returns how long each call took, sorted, and the number of calls per second.
func (r *run) load(ctx context.Context, n int, do func(context.Context, int) error) (took []time.Duration, rate float64, err error) {
	parent := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		start = time.Now().Add(r.Time / settle)
		end   = start.Add(r.Time)
		last  = start
	)
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
			if now := time.Now(); now.After(last) {
				last = now
			}
		})
	}
	wg.Wait()
	switch {
	case parent.Err() != nil:
		return nil, 0, context.Cause(parent)
	case ctx.Err() != nil:
		return nil, 0, context.Cause(ctx)
	}
	slices.Sort(took)
	return took, float64(len(took)) / last.Sub(start).Seconds(), nil
}

// handOffs measures the time from an unlock until a waiting client has the lock.
func (r *run) handOffs(ctx context.Context) (took []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		lease *holdfast.Lease
		at    time.Time
		err   error
	}
	for end := time.Now().Add(r.Time); len(took) == 0 || time.Now().Before(end); {
		lease, err := r.a.Lock(ctx, "hand-off")
		if err != nil {
			return nil, err
		}
		select {
		case <-r.waiting: // of the last turn
		default:
		}
		done := make(chan outcome, 1)
		go func() {
			lease, err := r.b.Lock(ctx, "hand-off")
			done <- outcome{lease, time.Now(), err}
		}()
		select {
		case <-r.waiting:
		case out := <-done:
			return nil, errors.Join(errors.New("a second client did not wait for a lock that is held"), out.err)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		begin := time.Now()
		if err := lease.Unlock(ctx); err != nil {
			return nil, err
		}
		out := <-done
		if out.err != nil {
			return nil, out.err
		}
		took = append(took, out.at.Sub(begin))
		if err := out.lease.Unlock(ctx); err != nil {
			return nil, err
		}
	}
	slices.Sort(took)
	return took, nil
}

// leftovers returns an error if something is left of the scratch names.
func (r *run) leftovers(ctx context.Context) error {
	var left []string
	for info, err := range r.a.List(ctx, "") {
		if err != nil {
			return err
		}
		left = append(left, r.prefix+info.Name)
	}
	if len(left) > 0 {
		return fmt.Errorf("these scratch names are still held: %s", strings.Join(left, ", "))
	}
	return nil
}

// quantile returns the p-th percentile of sorted durations.
func quantile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
