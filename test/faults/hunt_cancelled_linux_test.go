package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// checkCancelled checks L2 for calls that are cancelled within milliseconds: they must not keep a name
// closed for their TTL, which is long here. No fault is caused meanwhile.
func (h *hunt) checkCancelled() {
	if *huntTime < waitTime {
		return
	}
	const names, most = 50, 10 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	var longest time.Duration
	note := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, d)
	}
	lock := func(c *holdfast.Client, patient bool) {
		limit := most
		if !patient {
			limit = rand.N(10 * time.Millisecond)
		}
		call, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		begin := time.Now()
		lease, err := c.Lock(call, fmt.Sprint("cancelled", rand.N(names)), holdfast.TTL(time.Minute))
		if err == nil {
			note(time.Since(begin))
			err = lease.Unlock(context.Background())
		}
		if patient && err != nil {
			h.t.Logf("a lock on healthy servers: %v", err)
			note(most)
		}
	}
	var clients []*holdfast.Client
	for i := range 3 {
		c := h.bed.open()
		clients = append(clients, c)
		for range 15 {
			all.Go(func() {
				for ctx.Err() == nil {
					lock(c, i == 0)
				}
			})
		}
	}
	all.Wait()
	for _, c := range clients {
		h.bed.close(c)
	}
	if longest >= most/2 {
		h.report(Violation{Invariant: "L2", At: now(), Text: fmt.Sprintf("cancelled: a call waited for %v for a name for which others had cancelled their calls", longest)})
	}
}
