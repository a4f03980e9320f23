package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// ownNames measures P1: the throughput of pairs without contention.
func (b *bench) ownNames(ctx context.Context) error {
	return b.undisturbed(ctx, b.goroutines, atLeast(0.75), atLeast(1.8))
}

// oneGoroutine measures P2: the latency of a pair.
func (b *bench) oneGoroutine(ctx context.Context) error {
	return b.undisturbed(ctx, 1, atLeast(0.85), atLeast(1))
}

func (b *bench) undisturbed(ctx context.Context, goroutines int, againstRaw, againstBest *target) error {
	peers := b.wanted(all)
	var turns []turn[pairCost]
	for _, p := range peers {
		l, err := p.open(b.redis.Addr())
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer l.Close()
		turns = append(turns, turn[pairCost]{p.name, func() (pairCost, error) {
			return b.pairCost(l, p.name+":own", goroutines)
		}, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	rates := make(map[string][]float64)
	for name, costs := range found {
		rates[name] = column(costs, func(c pairCost) float64 { return c.rate })
	}
	work := ownNamesOf(goroutines)
	b.compare(work, peers, rates, againstRaw, againstBest)
	for _, p := range peers {
		if cpuKnown {
			b.add(work, p.name+": client", "µs of a core/pair", column(found[p.name], func(c pairCost) float64 { return c.client }), nil)
		}
		b.add(work, p.name+": server", "µs of a core/pair", column(found[p.name], func(c pairCost) float64 { return c.server }), nil)
	}
	return nil
}

// A pairCost is the number of pairs per second, and the CPU time of one pair. On a shared
// machine, CPU time says more than elapsed time.
type pairCost struct{ rate, client, server float64 }

func (b *bench) pairCost(l locker, prefix string, goroutines int) (c pairCost, err error) {
	server, err := processorTimeOf(b.redis)
	if err != nil {
		return c, err
	}
	client, begin := processorTime(), time.Now()
	if c.rate, err = pairRate(l, prefix, goroutines, b.time); err != nil {
		return c, err
	}
	n := c.rate * time.Since(begin).Seconds()
	c.client = float64((processorTime() - client).Microseconds()) / n
	after, err := processorTimeOf(b.redis)
	c.server = float64((after - server).Microseconds()) / n
	return c, err
}

// ownNamesOf describes the workload.
func ownNamesOf(goroutines int) string {
	if goroutines == 1 {
		return "1 goroutine, own name"
	}
	return fmt.Sprintf("%d goroutines, own names", goroutines)
}

// hangs is how long to wait for goroutines before giving up. A peer that misses a wake-up waits
// forever.
const hangs = 5 * time.Second

// pairRate returns the pairs per second of goroutines that each use their own name.
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
