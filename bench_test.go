package holdfast_test

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
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

// BenchmarkPairsOnOwnNames measures 64 goroutines, each with its own name.
func BenchmarkPairsOnOwnNames(b *testing.B) {
	c := mustNew(b, memstore.New())
	defer c.Close()
	ctx := context.Background()
	var n atomic.Int64
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		name := "name:" + strconv.FormatInt(n.Add(1), 10)
		for pb.Next() {
			lease, err := c.Lock(ctx, name)
			if err != nil {
				b.Error(err)
				return
			}
			lease.Unlock(ctx)
		}
	})
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

// BenchmarkHeld measures 100,000 leases held by one client: memory and goroutines per lease.
func BenchmarkHeld(b *testing.B) {
	const leases = 100_000
	ctx := context.Background()
	names := make([]string, leases)
	for i := range names {
		names[i] = "name:" + strconv.Itoa(i)
	}
	for b.Loop() {
		c := mustNew(b, memstore.New(), holdfast.WithTTL(time.Minute))
		heap, goroutines := heapInUse(), runtime.NumGoroutine()
		held := make([]*holdfast.Lease, leases)
		for i, name := range names {
			lease, err := c.Lock(ctx, name)
			if err != nil {
				b.Fatal(err)
			}
			held[i] = lease
		}
		b.ReportMetric(float64(heapInUse()-heap)/leases, "heap-B/lease")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/leases, "goroutines/lease")
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
		runtime.KeepAlive(held)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
