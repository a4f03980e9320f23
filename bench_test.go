package holdfast_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast/memstore"
)

// BenchmarkPair measures an uncontended Lock and Unlock.
func BenchmarkPair(b *testing.B) {
	c := mustNew(b, memstore.New())
	defer c.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lease, err := c.Lock(ctx, "name")
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandover measures 64 goroutines on one name: hand-overs per second, and how evenly they
// are distributed.
func BenchmarkHandover(b *testing.B) {
	const goroutines = 64
	c := mustNew(b, memstore.New())
	defer c.Close()
	ctx := context.Background()
	var left atomic.Int64
	left.Store(int64(b.N))
	counts := make([]int64, goroutines)
	var wg, ready sync.WaitGroup
	start := make(chan struct{})
	ready.Add(goroutines)
	b.ReportAllocs()
	for i := range goroutines {
		wg.Go(func() {
			ready.Done()
			<-start
			for left.Add(-1) >= 0 {
				lease, err := c.Lock(ctx, "hot")
				if err != nil {
					b.Error(err)
					return
				}
				counts[i]++
				lease.Unlock(ctx)
			}
		})
	}
	ready.Wait()
	b.ResetTimer()
	close(start)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "handovers/s")
	if b.N > 100*goroutines {
		b.ReportMetric(float64(slices.Max(counts))/float64(slices.Min(counts)), "busiest/idlest")
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
