package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// ownNames is P1: nobody disturbs anybody, so this is what a pair costs.
func (b *bench) ownNames(ctx context.Context) error {
	return b.undisturbed(ctx, b.goroutines, atLeast(0.75), atLeast(1.8))
}

// oneGoroutine is P2: what a pair takes.
func (b *bench) oneGoroutine(ctx context.Context) error {
	return b.undisturbed(ctx, 1, atLeast(0.85), atLeast(1))
}

func (b *bench) undisturbed(ctx context.Context, goroutines int, againstRaw, againstBest *target) error {
	peers := b.wanted(all)
	var turns []turn[float64]
	for _, p := range peers {
		l, err := p.open(b.redis.Addr())
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer l.Close()
		turns = append(turns, turn[float64]{p.name, func() (float64, error) {
			return pairRate(l, p.name+":own", goroutines, b.time)
		}, p.foreign()})
	}
	rates, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	b.compare(ownNamesOf(goroutines), peers, rates, againstRaw, againstBest)
	return nil
}

// ownNamesOf says what the work is.
func ownNamesOf(goroutines int) string {
	if goroutines == 1 {
		return "1 goroutine, own name"
	}
	return fmt.Sprintf("%d goroutines, own names", goroutines)
}

// hangs is after how long goroutines that do not come back are given up: a peer that misses
// a wake-up waits for ever.
const hangs = 5 * time.Second

// pairRate is how many pairs a second goroutines make, each on a name of its own.
func pairRate(l locker, prefix string, goroutines int, d time.Duration) (float64, error) {
	ctx := context.Background()
	type one struct {
		n atomic.Int64
		_ [56]byte // a cache line each
	}
	counts := make([]one, goroutines)
	errs := make(chan error, goroutines)
	begin := time.Now()
	end := begin.Add(d)
	for g := range goroutines {
		go func() {
			name := fmt.Sprintf("%s:%d", prefix, g)
			var err error
			for err == nil && time.Now().Before(end) {
				var h held
				if h, err = l.Lock(ctx, name); err == nil {
					err = h.Unlock(ctx)
					counts[g].n.Add(1)
				}
			}
			errs <- err
		}()
	}
	late := time.After(d + hangs)
	for g := range goroutines {
		select {
		case err := <-errs:
			if err != nil {
				return 0, err
			}
		case <-late:
			return 0, fmt.Errorf("%d of %d goroutines hang", goroutines-g, goroutines)
		}
	}
	took := time.Since(begin)
	sum := int64(0)
	for g := range counts {
		sum += counts[g].n.Load()
	}
	return float64(sum) / took.Seconds(), nil
}
