package main

import (
	"context"
	"fmt"
	"slices"
)

// A shape is a distribution of goroutines, which contend for one name, over clients.
type shape struct{ clients, goroutines int }

func (s shape) String() string { return fmt.Sprintf("%d×%d", s.clients, s.goroutines) }

// shapesOf returns the distributions of n goroutines over 1, 2, 4, 16 and n clients.
func shapesOf(n int) []shape {
	var shapes []shape
	for _, clients := range []int{1, 2, 4, 16, n} {
		s := shape{clients, n / clients}
		if clients <= n && !slices.Contains(shapes, s) {
			shapes = append(shapes, s)
		}
	}
	return shapes
}

// clientsByGoroutines is the part of P4 that varies both dimensions: a store that is fast with
// one client, or with one goroutine in each client, can be slow with a mix of both.
func (b *bench) clientsByGoroutines(ctx context.Context) error {
	return b.shapes(ctx, peer{name: us, open: openHoldfast}, b.redis.Addr(), 0.7)
}

// shapes measures goroutines on one name, distributed over clients in several ways. Each client
// has its own connection, like a separate process. If the target is not 0, every shape must
// reach that fraction of the rate of two clients.
func (b *bench) shapes(ctx context.Context, p peer, addr string, part float64) error {
	var turns []turn[rush]
	shapes := shapesOf(b.goroutines)
	for _, s := range shapes {
		var lockers []locker
		for range s.clients {
			l, err := p.open(addr)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			defer l.Close()
			lockers = append(lockers, slices.Repeat([]locker{l}, s.goroutines)...)
		}
		name := "shape:" + s.String()
		turns = append(turns, turn[rush]{s.String(), func() (rush, error) { return rushFor(lockers, name, 2*b.time) }, false})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	rates := ratesOf(found)
	work := p.name + ", one name, clients × goroutines"
	for _, s := range shapes {
		b.add(work, s.String(), pairs, rates[s.String()], nil)
	}
	two := shape{2, b.goroutines / 2}
	for _, s := range shapes {
		if s.clients > two.clients && s.goroutines > 1 {
			var want *target
			if part > 0 {
				want = atLeast(part)
			}
			b.add(work, s.String()+" / "+two.String(), "×", ratios(rates[s.String()], rates[two.String()]), want)
		}
	}
	for _, s := range shapes {
		b.add(work, s.String()+": p99 wait", "ms", column(found[s.String()], func(r rush) float64 { return r.p99.Seconds() * 1000 }), nil)
		b.add(work, s.String()+": busiest / idlest", "×", column(found[s.String()], rush.unfair), nil)
	}
	return nil
}
