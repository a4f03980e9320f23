package faults

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
)

const (
	huntWaiters = 8
	waitTime    = 10 * time.Second

	// These bound the requests of a waiter in a heartbeat. On Redis it asks about twice. On
	// PostgreSQL it asks every two seconds, and its pool tests a connection that was idle before. The
	// rest is for delays, and for the server's own transactions.
	redisAsks = 4
	pgAsks    = 8
)

// checkCancelled checks L2 for calls that are cancelled within milliseconds: they must not keep a name
// closed for their TTL, which is long here. No fault is caused meanwhile.
func (h *hunt) checkCancelled() {
	if *huntTime < waitTime {
		return
	}
	l := h.startLoop(50, time.Minute, 12, 3)
	time.Sleep(waitTime)
	l.stop()
	h.require(l.longest < 5*time.Second, "L2", "cancelled: a call failed or waited, %v, for a name for which others had cancelled their calls", l.longest)
}

// checkWaiters checks R2: how many requests clients send while they wait for a name that is held.
func (h *hunt) checkWaiters() {
	if h.requests == nil || *huntTime < waitTime {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	holder := h.bed.open()
	lease, err := holder.Lock(ctx, "waited", holdfast.TTL(5*time.Minute))
	if err != nil {
		h.t.Errorf("lock on healthy servers: %v", err)
		cancel()
		return
	}
	var all sync.WaitGroup
	var clients []*holdfast.Client
	for range huntWaiters {
		c := h.bed.open()
		clients = append(clients, c)
		all.Go(func() { c.Lock(ctx, "waited") })
	}
	h.bed.queued(holder, "waited", huntWaiters)
	time.Sleep(2 * time.Second) // PostgreSQL counts about a second late
	before := h.requests()
	time.Sleep(waitTime)
	sent := h.requests() - before
	most := h.asks * huntWaiters * float64(waitTime) / float64(h.caps.Heartbeat)
	h.require(sent <= most, "R2", "%d waiters sent %.0f requests in %v, want at most %.0f", huntWaiters, sent, waitTime, most)
	h.result.Waiting = sent / waitTime.Seconds() / huntWaiters
	cancel()
	all.Wait()
	lease.Unlock(context.Background())
	h.bed.close(append(clients, holder)...)
}

// redisRequests returns the number of scripts that a Redis server has run, which is the number of
// requests. Their commands are not counted.
func (h *hunt) redisRequests() (n float64) {
	info, err := h.bed.nodes[0].Info("commandstats")
	if err != nil {
		h.t.Errorf("INFO: %v", err)
	}
	for name, stats := range info {
		if strings.HasPrefix(name, "cmdstat_evalsha") || name == "cmdstat_eval" {
			calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
			k, _ := strconv.ParseFloat(calls, 64)
			n += k
		}
	}
	return n
}

// pgRequests returns the number of transactions of a PostgreSQL server.
func (h *hunt) pgRequests() float64 {
	n, err := strconv.ParseFloat(h.bed.pg.Value("SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname = 'postgres'"), 64)
	if err != nil {
		h.t.Errorf("pg_stat_database: %v", err)
	}
	return n
}
