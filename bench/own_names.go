package main

import (
	"context"
	"fmt"
	"slices"
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

// A candidate is one of those that are compared.
type candidate struct {
	name    string
	l       locker
	prefix  string // of the names that it locks
	mayFail bool
}

// partsOfTurn is in how many parts interleavePairs divides a turn.
const partsOfTurn = 30

// interleavePairs measures the pairs per second of candidates, each with its own names. With one
// goroutine it divides their turns into parts, and the candidates alternate after each part: the
// speed of the processors and of the disk of a shared machine changes within a second. Many
// goroutines take too long to start and to end for that.
func interleavePairs(ctx context.Context, b *bench, goroutines int, candidates []candidate) (map[string][]float64, error) {
	parts := 1
	if goroutines == 1 {
		parts = partsOfTurn
	}
	fine := *b
	fine.rounds, fine.time = b.rounds*parts, b.time/time.Duration(parts)
	var turns []turn[tally]
	for _, c := range candidates {
		turns = append(turns, turn[tally]{c.name, func() (tally, error) { return countPairs(c.l, c.prefix, goroutines, fine.time) }, c.mayFail})
	}
	tallies, err := interleave(ctx, &fine, turns)
	rates := make(map[string][]float64)
	for name, list := range tallies {
		for round := range slices.Chunk(list, parts) {
			var sum tally
			for _, part := range round {
				sum.pairs += part.pairs
				sum.took += part.took
			}
			rates[name] = append(rates[name], sum.rate())
		}
	}
	return rates, err
}

// A tally counts pairs.
type tally struct {
	pairs int64
	took  time.Duration
}

func (t tally) rate() float64 { return float64(t.pairs) / t.took.Seconds() }

// pairRate returns the pairs per second of goroutines that each use their own name.
func pairRate(l locker, prefix string, goroutines int, d time.Duration) (float64, error) {
	t, err := countPairs(l, prefix, goroutines, d)
	if err != nil {
		return 0, err
	}
	return t.rate(), nil
}

// countPairs counts the pairs of goroutines that each use their own name.
func countPairs(l locker, prefix string, goroutines int, d time.Duration) (t tally, err error) {
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
				return t, err
			}
		case <-late:
			return t, fmt.Errorf("%d of %d goroutines hang", goroutines-g, goroutines)
		}
	}
	t.took = time.Since(begin)
	for g := range counts {
		t.pairs += counts[g].n.Load()
	}
	return t, nil
}
