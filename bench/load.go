package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
	"github.com/holdfast-lock/holdfast/redisstore"
)

// waitersCost measures P6: the load that waiters for a held lock put on the server.
func (b *bench) waitersCost() {
	var turns []turn
	for _, p := range b.waiting(redisServer) {
		turns = append(turns, turn{p.name, func() []figure { return b.waitersOf(p) }, p.foreign()})
	}
	b.measure(fmt.Sprintf("%d × %d goroutines wait", b.processes, b.waiters), once, turns)
}

// waitersOf counts the requests of the waiters of one peer. Each client stands for a process.
func (b *bench) waitersOf(p peer) []figure {
	const name = "awaited"
	holder := b.open(redisServer, p)
	defer holder.close()
	lockers, end := openShape(p, b.addr(redisServer), shape{b.processes, b.waiters})
	defer end()
	ctx, cancel := context.WithTimeout(b.ctx, time.Hour) // otherwise redislock chooses its own deadline
	defer cancel()
	h := must.Get(holder.lock(ctx, name))
	var wg sync.WaitGroup
	errs := make([]error, len(lockers))
	for i, l := range lockers {
		wg.Go(func() {
			switch h, err := l.lock(ctx, name); {
			case err == nil:
				h.Unlock(context.Background())
				errs[i] = errors.New("the lock was granted while another held it")
			case ctx.Err() == nil:
				errs[i] = err
			}
		})
	}
	window := b.window
	if p.name != us {
		window /= 4 // enough for peers that poll
	}
	b.pause(min(2*time.Second, window)) // so that all of them are queued
	before := b.commands()
	b.pause(window)
	after := b.commands()
	cancel()
	wg.Wait()
	h.Unlock(context.Background())
	must.OK(errors.Join(errs...))

	// Commands inside scripts count too. Scripts and pings are all requests of a Holdfast client.
	var commands, requests float64
	for command, n := range after {
		n -= before[command]
		switch command {
		case "info": // of this function
			continue
		case "evalsha", "eval", "ping":
			requests += n
		}
		commands += n
	}
	share := window.Seconds() * float64(b.processes)
	figures := []figure{{"commands, in scripts too", "/s per process", commands / share}}
	if p.name == us {
		figures = append(figures, figure{"requests", "/s per process", requests / share})
	}
	return figures
}

// commands returns how often the server ran each command.
func (b *bench) commands() map[string]float64 {
	counts := make(map[string]float64)
	for name, text := range must.Get(b.redis.Info("commandstats")) {
		calls, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		counts[strings.TrimPrefix(name, "cmdstat_")] = must.Get(strconv.ParseFloat(calls, 64))
	}
	return counts
}

// manyHeld measures P7: what held leases cost this process. All other clients are closed.
func (b *bench) manyHeld() {
	b.measure(fmt.Sprintf("%d leases held for %v", b.leases, b.hold), once, []turn{{who: us, take: b.holdMany}})
}

func (b *bench) holdMany() []figure {
	client := must.Get(holdfast.Open(b.ctx, "redis://"+b.redis.Addr()))
	defer client.Close()
	leases, names := make([]*holdfast.Lease, b.leases), make([]string, b.leases)
	for i := range names {
		names[i] = "held:" + strconv.Itoa(i)
	}
	// The client library allocates its pipelines and buffers first.
	must.Get(countPairs(ourLocker(client), "warm", 64, 50*time.Millisecond))
	heap, goroutines := heapInUse(), runtime.NumGoroutine()

	const takers = 64
	errs := make([]error, takers)
	var wg sync.WaitGroup
	for g := range takers {
		wg.Go(func() {
			for i := g; i < len(leases) && errs[g] == nil; i += takers {
				leases[i], errs[g] = client.Lock(b.ctx, names[i])
			}
		})
	}
	wg.Wait()
	must.OK(errors.Join(errs...))
	heap, goroutines = heapInUse()-heap, runtime.NumGoroutine()-goroutines
	begin, used := time.Now(), processorTime()
	b.pause(b.hold)
	cpu := float64(processorTime()-used) / float64(time.Since(begin))
	lost := 0
	for _, lease := range leases {
		if lease.Err() != nil {
			lost++
		}
	}
	return []figure{
		{"goroutines", "in all", float64(goroutines)},
		{"heap", "bytes each", heap / float64(b.leases)},
		{"processor", "% of a core", 100 * cpu},
		{"lost", "leases", float64(lost)},
	}
}

func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// manyNames compares a server on which few names are held with one on which many are.
func (b *bench) manyNames() {
	var turns []turn
	for _, n := range []int{b.few, b.names} {
		server := servers.StartRedis(b.t, redisOptions)
		defer server.Kill()
		b.fill(server.Addr(), n)
		l := redisServer.peer(us).open(server.Addr())
		defer l.close()
		turns = append(turns, turn{who: fmt.Sprintf("%s, %d names held", us, n), take: func() []figure {
			return []figure{{"", pairs, must.Get(countPairs(l, "own", b.goroutines, b.time)).rate()}}
		}})
	}
	work := fmt.Sprintf("%d goroutines, own names", b.goroutines)
	b.measure(work, 1, turns)
	b.ratio(work, turns[1].who, turns[0].who, "")
}

// fill makes a server hold n names. It copies the key of one, which is much faster than taking all.
func (b *bench) fill(addr string, n int) {
	conn := dial(addr)
	defer conn.Close()
	client := must.Get(holdfast.New(must.Get(redisstore.New(conn))))
	defer client.Close()
	must.Get(client.Lock(b.ctx, "name", holdfast.TTL(time.Hour)))
	const script = `
		for i = ARGV[1], ARGV[2] do
			assert(redis.call('COPY', 'holdfast:lock:name', 'holdfast:lock:order:' .. i) == 1)
		end
		return redis.status_reply('OK')`
	const some = 100_000 // in one call, so that the server is not busy for long
	for i := 0; i < n; i += some {
		eval := conn.B().Eval().Script(script).Numkeys(0).Arg(fmt.Sprint(i), fmt.Sprint(min(i+some, n)-1))
		must.OK(conn.Do(b.ctx, eval.Build()).Error())
	}
}

// manyQueued measures the cost of one turn of a client for the server, with queues of different
// lengths. The clients share connections, because only the queue is of interest.
func (b *bench) manyQueued() {
	var turns []turn
	for _, n := range b.queues {
		conn := dial(b.redis.Addr())
		defer conn.Close()
		lockers := make([]*locker, n+1) // one of them holds the lock
		for i := range lockers {
			client := must.Get(holdfast.New(must.Get(redisstore.New(conn))))
			defer client.Close()
			lockers[i] = ourLocker(client)
		}
		turns = append(turns, turn{who: fmt.Sprintf("%s, %d clients wait", us, n), take: func() []figure {
			must.Get(contend(lockers, "queued", b.time/10)) // lets all of them queue first
			before := b.serverTime(redisServer)
			r := must.Get(contend(lockers, "queued", b.time))
			return []figure{{"", "µs of the server", r.perPair(b.serverTime(redisServer) - before)}}
		}})
	}
	work := "one client's turn: release, wake-up, next, queue again"
	b.measure(work, 1, turns)
	// One waiter is not a queue.
	b.ratio(work, turns[len(turns)-1].who, turns[1].who, "")
}
