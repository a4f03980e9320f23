package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// A holding is the cost of held leases in a process.
type holding struct {
	Goroutines float64 // beyond those of an idle client
	Heap       float64 // bytes per lease
	CPU        float64 // fraction of a core while they are renewed
	Lost       int
}

// manyHeld measures P7. It uses a separate process, so that heap and CPU time are only those of
// the leases.
func (b *bench) manyHeld(ctx context.Context) error {
	c, err := startChild(ctx, "holder", b.redis.Addr(), strconv.Itoa(b.leases), b.hold.String())
	if err != nil {
		return err
	}
	defer c.end()
	text, err := c.hear("held")
	if err != nil {
		return err
	}
	var h holding
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return err
	}
	if err := c.end(); err != nil {
		return err
	}
	work := fmt.Sprintf("%d leases held for %v", b.leases, b.hold)
	b.add(work, us+": goroutines", "in all", []float64{h.Goroutines}, atMost(float64(b.leases)/100))
	b.add(work, us+": heap", "bytes each", []float64{h.Heap}, atMost(1024))
	if cpuKnown {
		b.add(work, us+": processor", "% of a core", []float64{100 * h.CPU}, atMost(25))
	}
	b.add(work, us+": lost", "leases", []float64{float64(h.Lost)}, atMost(0))
	return nil
}

// holderRole holds leases for a time. Args: address, number, time.
func holderRole(ctx context.Context, args []string, _ *bufio.Scanner) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	hold, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	client, err := holdfast.Open(ctx, "redis://"+args[0])
	if err != nil {
		return err
	}
	defer client.Close()
	leases := make([]*holdfast.Lease, n)
	names := make([]string, n)
	for i := range names {
		names[i] = "held:" + strconv.Itoa(i)
	}
	// The client library allocates its pipelines and buffers first.
	if _, err := countPairs(ourLocker(client), "warm", 64, 50*time.Millisecond); err != nil {
		return err
	}
	heap, goroutines := heapInUse(), runtime.NumGoroutine()

	const takers = 64
	errs := make([]error, takers)
	var wg sync.WaitGroup
	for g := range takers {
		wg.Go(func() {
			for i := g; i < n && errs[g] == nil; i += takers {
				leases[i], errs[g] = client.Lock(ctx, names[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	h := holding{Heap: (heapInUse() - heap) / float64(n)}
	h.Goroutines = float64(runtime.NumGoroutine() - goroutines)
	begin, used := time.Now(), processorTime()
	time.Sleep(hold)
	h.CPU = float64(processorTime()-used) / float64(time.Since(begin))
	for _, lease := range leases {
		if lease.Err() != nil {
			h.Lost++
		}
	}
	text, err := json.Marshal(h)
	fmt.Println("held", string(text))
	return err
}

func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
