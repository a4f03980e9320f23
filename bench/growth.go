package main

import (
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
	"github.com/holdfast-lock/holdfast/redisstore"
)

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
