package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/redisstore"
)

// manyNames compares a server on which few names are held with one on which many are.
func (b *bench) manyNames() {
	var turns []turn
	for _, n := range []int{b.few, b.names} {
		server := servers.StartRedis(b.t, redisOptions)
		defer server.Kill()
		b.check(fill(b.ctx, server.Addr(), n))
		l, err := redisServer.us().open(server.Addr())
		b.check(err)
		defer l.close()
		turns = append(turns, turn{who: fmt.Sprintf("%s, %d names held", us, n), take: func() ([]figure, error) {
			r, err := countPairs(l, "own", b.goroutines, b.time)
			if err != nil {
				return nil, err
			}
			return []figure{{"", pairs, r.rate()}}, nil
		}})
	}
	work := oneOrMany(b.goroutines)
	b.measure(work, 1, turns)
	b.ratio(work, turns[1].who, turns[0].who, "")
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
	prefix, rest := strings.TrimSuffix(keys[0], name), n
	for rest > 0 {
		var commands rueidis.Commands
		for range min(rest, 1000) {
			rest--
			commands = append(commands, conn.B().Restore().Key(fmt.Sprintf("%sorder:%d", prefix, rest)).
				Ttl(time.Hour.Milliseconds()).SerializedValue(record).Build())
		}
		for _, result := range conn.DoMulti(ctx, commands...) {
			if err := result.Error(); err != nil {
				return err
			}
		}
	}
	return nil
}

// manyQueued measures the cost of one turn of a client for the server, with queues of different
// lengths. The clients share connections, because only the queue is of interest.
func (b *bench) manyQueued() {
	var turns []turn
	for _, n := range b.queues {
		conn, err := dial(b.redis.Addr())
		b.check(err)
		defer conn.Close()
		lockers := make([]*locker, n+1) // one of them holds the lock
		for i := range lockers {
			client, err := newClient(conn)
			b.check(err)
			defer client.Close()
			lockers[i] = ourLocker(client)
		}
		turns = append(turns, turn{who: fmt.Sprintf("%s, %d clients wait", us, n), take: func() ([]figure, error) {
			// Let all of them queue first.
			if _, err := contend(lockers, "queued", b.time/10); err != nil {
				return nil, err
			}
			before := b.serverTime(redisServer)
			r, err := contend(lockers, "queued", b.time)
			if err != nil {
				return nil, err
			}
			return []figure{{"", "µs of the server", r.perPair(b.serverTime(redisServer) - before)}}, nil
		}})
	}
	work := "one client's turn: release, wake-up, next, queue again"
	b.measure(work, 1, turns)
	// One waiter is not a queue.
	b.ratio(work, turns[len(turns)-1].who, turns[1].who, "")
}
