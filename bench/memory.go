package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
)

// memory measures P11: the cost of the core without a server.
func (b *bench) memory(ctx context.Context) error {
	c, err := holdfast.New(memstore.New())
	if err != nil {
		return err
	}
	defer c.Close()
	l := ourLocker(c)
	type cost struct{ rate, allocations float64 }
	found, err := interleave(ctx, b, []turn[cost]{{us, func() (cost, error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		t, err := countPairs(l, "own", 1, b.time)
		runtime.ReadMemStats(&after)
		return cost{t.rate(), float64(after.Mallocs-before.Mallocs) / float64(t.pairs)}, err
	}, false}})
	if err != nil {
		return err
	}
	work := "memory, " + ownNamesOf(1)
	b.add(work, us, pairs, column(found[us], func(c cost) float64 { return c.rate }), nil)
	b.add(work, us+": time", "µs/pair", column(found[us], func(c cost) float64 { return 1e6 / c.rate }), atMost(1))
	b.add(work, us+": allocations", "/pair", column(found[us], func(c cost) float64 { return c.allocations }), atMost(3))

	lockers := slices.Repeat([]*locker{l}, b.goroutines)
	hot, err := interleave(ctx, b, []turn[rush]{{us, func() (rush, error) { return rushFor(lockers, "hot", b.time) }, false}})
	if err != nil {
		return err
	}
	work = fmt.Sprintf("memory, %d goroutines, one name, one client", b.goroutines)
	b.add(work, us, pairs, column(hot[us], func(r rush) float64 { return r.rate }), nil)
	b.add(work, us+": busiest / idlest", "×", column(hot[us], rush.unfair), atMost(1.5))
	return nil
}
