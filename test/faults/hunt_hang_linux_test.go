package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// Numbers of checkHang. The hang is shorter than a third of the TTL, so it costs no lease: L3. It is
// longer than a call may take, so calls fail and are repeated meanwhile.
const (
	hangTTL    = 30 * time.Second
	hangTime   = 8 * time.Second
	hangNames  = 8
	hangLeases = 20_000
)

// checkHang checks what a hang of a server does if TTLs are long. During a hunt they are short, so what is
// left of requests without a reply ends soon by itself. After the hang, the rate must be back at half of
// what it was (L1). On Redis a client also holds many leases, which are due for renewal during the hang. It
// must lose none (L3): if it sent all of them again and again, the server would execute all of that before
// the renewals that count.
func (h *hunt) checkHang() {
	k := slices.IndexFunc(h.troubles, func(tr trouble) bool {
		return tr.kind == "server stopped" || tr.kind == "member stopped" && tr.spares
	})
	if k < 0 || *huntTime < waitTime {
		return
	}
	var lost atomic.Int64
	keeper := h.bed.open(holdfast.WithTTL(hangTTL), holdfast.WithObserver(func(e holdfast.Event) {
		if e.Kind == holdfast.EventLost {
			lost.Add(1)
		}
	}))
	begin, leases := now(), 0
	if *huntStore == "redis" {
		leases = h.holdMany(keeper, hangLeases)
	}
	l := h.startLoop(hangNames, hangTTL, 4, 1)
	if leases > 0 {
		time.Sleep(max(window, begin+hangTTL/3-time.Second-now())) // until the leases are due
	}
	before := l.rate(window)
	tr := h.troubles[k]
	h.cause(tr, hangTime, 0)
	if tr.kind == "member stopped" {
		h.cause(tr, hangTime, 1) // if the first one has votes without a holder, there is no majority now or later
	}
	ended, rate := now(), 0.0
	time.Sleep(recovery) // all callers that can be delayed are delayed by then
	for rate < before/2 && now() < ended+recovery+slack+2*window {
		rate = l.rate(window / 2)
	}
	h.require(rate >= before/2, "L1", "rate: %v after %q, which lasted %v, names with a TTL of %v have %.0f grants per second; before there were %.0f",
		now()-ended, tr.kind, hangTime, hangTTL, rate, before)
	l.stop()
	if leases > 0 {
		time.Sleep(hangTTL / 3) // the last leases are renewed or lost
	}
	n := lost.Load()
	h.require(n == 0, "L3", "a hang of %v cost %d of %d leases with a TTL of %v", hangTime, n, leases, hangTTL)
	h.t.Logf("hang of %v with a TTL of %v: %.0f grants per second before, %.0f after %v", hangTime, hangTTL, before, rate, now()-ended)
	h.bed.close(keeper)
}

// holdMany takes shared locks of as many names, and returns how many it got.
func (h *hunt) holdMany(c *holdfast.Client, n int) int {
	const workers = 64
	ctx, cancel := context.WithTimeout(context.Background(), hangTTL/3-2*time.Second)
	defer cancel()
	var got atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				if _, err := c.RLock(ctx, fmt.Sprint("many", i)); err != nil {
					return // on a slow machine there are fewer
				}
				got.Add(1)
			}
		})
	}
	all.Wait()
	return int(got.Load())
}

// A loop locks and unlocks random names of a few as fast as it can, with several clients.
type loop struct {
	h       *hunt
	grants  atomic.Int64
	cancel  context.CancelFunc
	all     sync.WaitGroup
	clients []*holdfast.Client

	mu      sync.Mutex
	longest time.Duration // that a call took which was not to be cancelled soon
}

// startLoop starts a loop with this many goroutines per client, which cancel this many of four calls soon.
func (h *hunt) startLoop(names int, ttl time.Duration, hands, cancelled int) *loop {
	l := &loop{h: h}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for range huntChildren {
		c := h.bed.open(holdfast.WithTTL(ttl))
		l.clients = append(l.clients, c)
		for range hands {
			l.all.Go(func() {
				for ctx.Err() == nil {
					limit, patient := limit, rand.N(4) >= cancelled
					if !patient {
						limit = rand.N(20 * time.Millisecond)
					}
					call, cancel := context.WithTimeout(ctx, limit)
					begin := time.Now()
					lease, err := c.Lock(call, fmt.Sprint("loop", rand.N(names)))
					cancel()
					if took := time.Since(begin); patient && err != nil && ctx.Err() == nil {
						h.t.Logf("Lock: %v", err)
						l.note(limit)
					} else if patient {
						l.note(took)
					}
					if err != nil {
						pause(ctx, time.Millisecond)
						continue
					}
					l.grants.Add(1)
					lease.Unlock(ctx)
				}
			})
		}
	}
	return l
}

func (l *loop) note(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.longest = max(l.longest, took)
}

// rate returns the number of grants per second in the next time.
func (l *loop) rate(d time.Duration) float64 {
	begin, n := time.Now(), l.grants.Load()
	time.Sleep(d)
	return float64(l.grants.Load()-n) / time.Since(begin).Seconds()
}

func (l *loop) stop() {
	l.cancel()
	l.all.Wait()
	l.h.bed.close(l.clients...)
}
