package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/redisstore"
)

// growth measures P12: the cost with many names and long queues.
func (b *bench) growth(ctx context.Context) error {
	if err := b.manyNames(ctx); err != nil {
		return err
	}
	return b.manyQueued(ctx)
}

// manyNames compares a server on which few names are held with one on which many are.
func (b *bench) manyNames(ctx context.Context) error {
	var turns []turn[float64]
	label := func(n int) string { return fmt.Sprintf("%s, %d names held", us, n) }
	for _, n := range []int{b.few, b.names} {
		server := servers.StartRedis(b.t, redisOptions)
		defer server.Kill()
		if err := fill(ctx, server.Addr(), n); err != nil {
			return err
		}
		l, err := redisServer.us().open(server.Addr())
		if err != nil {
			return err
		}
		defer l.close()
		turns = append(turns, turn[float64]{label(n), func() (float64, error) {
			t, err := countPairs(l, "own", b.goroutines, b.time)
			return t.rate(), err
		}, false})
	}
	rates, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := ownNamesOf(b.goroutines)
	for _, t := range turns {
		b.add(work, t.name, pairs, rates[t.name], nil)
	}
	b.add(work, fmt.Sprintf("%s, %d / %d names held", us, b.names, b.few), "×",
		ratios(rates[turns[1].name], rates[turns[0].name]), atLeast(0.9))
	return nil
}

// newClient returns a client on a connection.
func newClient(conn rueidis.Client) (*holdfast.Client, error) {
	s, err := redisstore.New(conn)
	if err != nil {
		return nil, err
	}
	return holdfast.New(s)
}

// fill makes a server hold n names. It takes one name and copies its keys, which is much faster
// than taking n names.
func fill(ctx context.Context, addr string, n int) error {
	conn, err := dial(addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := newClient(conn)
	if err != nil {
		return err
	}
	defer client.Close()
	const name = "name"
	lease, err := client.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	keys, err := conn.Do(ctx, conn.B().Keys().Pattern("*:"+name).Build()).AsStrSlice()
	if err != nil {
		return err
	}
	if len(keys) != 1 {
		return fmt.Errorf("the keys of a lock are %q, want one key", keys)
	}
	record, err := conn.Do(ctx, conn.B().Dump().Key(keys[0]).Build()).ToString()
	if err != nil {
		return err
	}
	return copies(ctx, conn, strings.TrimSuffix(keys[0], name), record, n)
}

// copies creates keys from the output of DUMP. They do not expire during the run.
func copies(ctx context.Context, conn rueidis.Client, prefix, record string, n int) error {
	const batch = 1000
	for i := 0; i < n; i += batch {
		var commands rueidis.Commands
		for k := i; k < min(n, i+batch); k++ {
			commands = append(commands, conn.B().Restore().Key(fmt.Sprintf("%sorder:%d", prefix, k)).Ttl(time.Hour.Milliseconds()).SerializedValue(record).Build())
		}
		for _, result := range conn.DoMulti(ctx, commands...) {
			if err := result.Error(); err != nil {
				return err
			}
		}
	}
	return nil
}

// manyQueued measures the cost of one turn for the server, with queues of different lengths. The
// clients share connections, because only the queue is of interest.
func (b *bench) manyQueued(ctx context.Context) error {
	var turns []turn[float64]
	for _, n := range b.queues {
		conn, err := dial(b.redis.Addr())
		if err != nil {
			return err
		}
		defer conn.Close()
		clients := make([]*holdfast.Client, n+1) // one of them holds the lock
		for i := range clients {
			if clients[i], err = newClient(conn); err != nil {
				return err
			}
			defer clients[i].Close()
		}
		turns = append(turns, turn[float64]{fmt.Sprintf("%s, %d clients wait", us, n), func() (float64, error) {
			return b.turnCost(ctx, clients)
		}, false})
	}
	costs, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	const work = workTurn
	for _, t := range turns {
		b.add(work, t.name, "µs of the server", costs[t.name], nil)
	}
	// One waiter is not a queue. From ten waiters on, the cost may grow at most with the
	// logarithm of their number.
	if n := len(turns); n > 2 {
		b.add(work, fmt.Sprintf("%s, %d / %d clients wait", us, b.queues[n-1], b.queues[1]), "×",
			ratios(costs[turns[n-1].name], costs[turns[1].name]), atMost(1.25))
	}
	return nil
}

// turnCost returns the cost of one turn for the server, in µs. All clients take and release one
// lock, and are queued most of the time.
func (b *bench) turnCost(ctx context.Context, clients []*holdfast.Client) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var turns atomic.Int64
	failed := make(chan error, len(clients))
	queued := make(chan struct{}, len(clients)) // receives once per client, after its first turn
	for _, c := range clients {
		wg.Go(func() {
			for first := true; ; first = false {
				lease, err := c.Lock(ctx, "queued")
				if err == nil {
					err = lease.Unlock(ctx)
				}
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					failed <- err
					return
				}
				turns.Add(1)
				if first {
					queued <- struct{}{}
				}
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	for range clients {
		select {
		case <-queued:
		case err := <-failed:
			return 0, err
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	before, err := processorTimeOf(b.redis)
	if err != nil {
		return 0, err
	}
	first := turns.Load()
	if err := pause(ctx, b.time); err != nil {
		return 0, err
	}
	last := turns.Load()
	after, err := processorTimeOf(b.redis)
	if err != nil {
		return 0, err
	}
	select {
	case err := <-failed:
		return 0, err
	default:
	}
	return float64((after - before).Microseconds()) / float64(max(1, last-first)), nil
}
