package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// ownNames measures pairs without contention: each goroutine has its own name.
func (b *bench) ownNames(ctx context.Context, s *system, goroutines int, againstRaw, againstBest *target) error {
	peers := b.wanted(s.peers)
	found, err := b.interleavePairs(ctx, s, peers, goroutines)
	if err != nil {
		return err
	}
	rates := make(map[string][]float64)
	for name, tallies := range found {
		rates[name] = column(tallies, tally.rate)
	}
	work := s.work("%s", ownNamesOf(goroutines))
	b.compare(work, peers, peers, rates, againstRaw, againstBest)
	if s != redisServer || !cpuKnown {
		return nil
	}
	for _, p := range peers {
		b.add(work, p.name+": client", "µs of a core/pair", column(found[p.name], func(t tally) float64 { return t.perPair(t.client) }), nil)
		b.add(work, p.name+": server", "µs of a core/pair", column(found[p.name], func(t tally) float64 { return t.perPair(t.server) }), nil)
	}
	return nil
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

// partsOfTurn is in how many parts interleavePairs divides a turn.
const partsOfTurn = 30

// interleavePairs counts the pairs of peers, each with its own names. With one goroutine it
// divides their turns into parts, and the peers alternate after each part: the speed of the
// processors and of the disk of a shared machine changes within a second. Many goroutines take
// too long to start and to end for that.
func (b *bench) interleavePairs(ctx context.Context, s *system, peers []peer, goroutines int) (map[string][]tally, error) {
	parts := 1
	if goroutines == 1 {
		parts = partsOfTurn
	}
	fine := *b
	fine.rounds, fine.time = b.rounds*parts, b.time/time.Duration(parts)
	var turns []turn[tally]
	for _, p := range peers {
		l, err := p.open(b.addr(s))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		defer l.close()
		turns = append(turns, turn[tally]{p.name, func() (tally, error) {
			server, err := b.serverTime(s)
			if err != nil {
				return tally{}, err
			}
			t, err := countPairs(l, p.name+":own", goroutines, fine.time)
			if err != nil {
				return t, err
			}
			after, err := b.serverTime(s)
			t.server = after - server
			return t, err
		}, p.foreign()})
	}
	found, err := interleave(ctx, &fine, turns)
	sums := make(map[string][]tally)
	for name, list := range found {
		for round := range slices.Chunk(list, parts) {
			var sum tally
			for _, part := range round {
				sum.pairs += part.pairs
				sum.took += part.took
				sum.client += part.client
				sum.server += part.server
			}
			sums[name] = append(sums[name], sum)
		}
	}
	return sums, err
}

// serverTime returns the CPU time that a single Redis server has used. On a shared machine, CPU
// time says more than elapsed time.
func (b *bench) serverTime(s *system) (time.Duration, error) {
	if s != redisServer {
		return 0, nil
	}
	return processorTimeOf(b.redis)
}

// A tally counts pairs, and the time that they took.
type tally struct {
	pairs                int64
	took, client, server time.Duration // client and server are CPU time
}

func (t tally) rate() float64 { return float64(t.pairs) / t.took.Seconds() }

// perPair returns the part of a time that one pair took, in µs.
func (t tally) perPair(all time.Duration) float64 {
	return float64(all.Microseconds()) / float64(max(1, t.pairs))
}

// countPairs counts the pairs of goroutines that each use their own name.
func countPairs(l *locker, prefix string, goroutines int, d time.Duration) (t tally, err error) {
	ctx := context.Background()
	type one struct {
		n atomic.Int64
		_ [56]byte // a cache line each
	}
	counts := make([]one, goroutines)
	errs := make(chan error, goroutines)
	begin, used := time.Now(), processorTime()
	end := begin.Add(d)
	for g := range goroutines {
		go func() {
			name := fmt.Sprintf("%s:%d", prefix, g)
			var err error
			for err == nil && time.Now().Before(end) {
				var h held
				if h, err = l.lock(ctx, name); err == nil {
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
	t.took, t.client = time.Since(begin), processorTime()-used
	for g := range counts {
		t.pairs += counts[g].n.Load()
	}
	return t, nil
}
