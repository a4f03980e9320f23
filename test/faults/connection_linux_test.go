package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// briefly is the deadline of a caller. A call that takes as long as late has missed the deadline,
// even on a busy machine. Client libraries have timeouts of 5 s and more.
const (
	briefly = 200 * time.Millisecond
	late    = 2 * time.Second
)

// endsBriefly makes calls with a deadline of briefly and checks that they return by then.
func endsBriefly(t *testing.T, client *holdfast.Client, held *held) {
	t.Helper()
	for what, call := range map[string]func(ctx context.Context) error{
		"TryLock": func(ctx context.Context) error { _, err := client.TryLock(ctx, "n"); return err },
		"Lock":    func(ctx context.Context) error { _, err := client.Lock(ctx, "n"); return err },
		"Renew":   func(ctx context.Context) error { return held.Renew(ctx) },
		"Inspect": func(ctx context.Context) error { _, err := client.Inspect(ctx, "n"); return err },
		"List": func(ctx context.Context) (err error) {
			for _, err = range client.List(ctx, "") {
				break
			}
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), briefly)
		begin := time.Now()
		err := call(ctx)
		took := time.Since(begin)
		cancel()
		if took > late {
			t.Errorf("%s with a deadline of %v took %v", what, briefly, took)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want that its deadline is over", what, err)
		}
	}
}

func TestACallReturnsAtItsDeadlineThoughNothingArrives(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, b *bed) {
		h := new(History)
		client, w := b.openBy()
		other := b.open()
		b.warmUp(client)
		lease := record(h).must(t, client, "held", longTTL)
		w.hold()
		endsBriefly(t, client, lease)
		w.lose()
		record(h).later(t, t.Context(), other, "n", longTTL).get(soon).mustUnlock(t)
		lease.mustUnlock(t)
		b.clean(soon, client, other)
	}
	onRedis(t, test)
	onSentinel(t, test)
}

func TestAGivenUpRequestDoesNotOutliveItsCleanUp(t *testing.T) {
	t.Parallel()
	b := single(t, servers.RedisOptions{})
	const rounds, calls = 5, 20
	client, other := b.open(), b.open()
	b.warmUp(client)
	for round := range rounds {
		b.primary().Stop()
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				// Some callers give up while their request is in flight, some before it is
				// sent.
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Millisecond)
				defer cancel()
				if _, err := client.TryLock(ctx, fmt.Sprint(round, "/", i), holdfast.TTL(longTTL)); err == nil {
					t.Error("a stopped server granted a lock")
				}
			})
		}
		all.Wait()
		b.primary().Continue()
		for i := range calls {
			within(t, soon, "the lock is free", func() error {
				lease, err := other.TryLock(t.Context(), fmt.Sprint(round, "/", i))
				if err == nil {
					err = lease.Unlock(t.Context())
				}
				return err
			})
		}
	}
	b.clean(soon, client, other)
}

func TestManyWaitersShareAConnectionToListen(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, b *bed) {
		const waiters = 300
		holder, client := b.open(), b.open()
		name := func(i int) string { return fmt.Sprint("n", i) }
		for i := range waiters {
			if _, err := holder.Lock(t.Context(), name(i), holdfast.TTL(longTTL)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				if _, err := client.Lock(ctx, name(i)); !errors.Is(err, context.Canceled) {
					t.Errorf("waiter %d: %v", i, err)
				}
			})
		}
		for i := range waiters {
			b.queued(holder, name(i), 1)
		}
		eventually(t, "the client listens", func() error {
			if listeners(b) == 0 {
				return errNotYet
			}
			return nil
		})
		most, servers := 1, 1
		if b.shards != nil {
			most, servers = 3, 3
		}
		time.Sleep(briefly) // so that further connections would be noticed
		if n := listeners(b); n > most {
			t.Errorf("%d connections listen for %d waiters, want %d at most", n, waiters, most)
		}
		n := 0
		for _, node := range b.nodes {
			n += len(connections(node))
		}
		if bound := servers * 2 * 20; n > bound { // two clients
			t.Errorf("%d connections for %d waiters, want %d at most", n, waiters, bound)
		}
		cancel()
		all.Wait()
		b.clean(soon, client, holder)
	}
	onRedis(t, test)
}

// listeners returns the number of connections with subscriptions.
func listeners(b *bed) (n int) {
	for _, node := range b.nodes {
		for _, conn := range connections(node) {
			if isListener(conn) {
				n++
			}
		}
	}
	return n
}

// isListener reports whether a connection has subscriptions.
func isListener(conn string) bool {
	return slices.ContainsFunc(strings.Fields(conn), func(field string) bool {
		return strings.HasPrefix(field, "flags=") && strings.Contains(field, "P")
	})
}

// handOff passes the lock "n" from one client to another that waits for it, and returns how
// long it took.
func handOff(t *testing.T, b *bed, from, to *holdfast.Client) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	// There is no Retry, because it would find the lock free by polling.
	lock := func(c *holdfast.Client) (lease *holdfast.Lease, err error) {
		err = retry(func() error { lease, err = c.Lock(ctx, "n"); return err })
		return lease, err
	}
	lease, err := lock(from)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		lease *holdfast.Lease
		err   error
	}
	results := make(chan result, 1)
	go func() {
		lease, err := lock(to)
		results <- result{lease, err}
	}()
	eventually(t, "the other waits", func() error {
		if len(results) > 0 {
			return nil // a failover lost the grant of the first client
		}
		info, err := from.Inspect(ctx, "n")
		if err == nil && len(info.Waiters) != 1 {
			err = errNotYet
		}
		return err
	})
	if len(results) > 0 {
		t.Log("a failover lost a grant")
	}
	begin := time.Now()
	if err := retry(func() error { return lease.Unlock(ctx) }); err != nil && !errors.Is(err, holdfast.ErrLost) {
		t.Fatal(err)
	}
	r := <-results
	took := time.Since(begin)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if err := retry(func() error { return r.lease.Unlock(ctx) }); err != nil && !errors.Is(err, holdfast.ErrLost) {
		t.Fatal(err)
	}
	return took
}

// failOver makes the Sentinels choose another primary. On a busy machine they may give up.
func failOver(b *bed) {
	b.t.Helper()
	old := b.primary()
	eventually(b.t, "the Sentinels choose another primary", func() error {
		b.group.Sentinels[0].Do("SENTINEL", "FAILOVER", servers.SentinelName)
		for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(20 * time.Millisecond) {
			if b.primary() != old {
				return nil
			}
		}
		return errNotYet
	})
}

func TestHandOffsAreFastAgainAfterAFailover(t *testing.T) {
	t.Parallel()
	const (
		fast   = 500 * time.Millisecond // a poll takes seconds
		inARow = 5
		soonOK = 8 * time.Second
	)
	test := func(failover func(b *bed) (after func())) func(t *testing.T, b *bed) {
		return func(t *testing.T, b *bed) {
			client, other := b.open(), b.open()
			for range 3 {
				handOff(t, b, client, other)
				handOff(t, b, other, client)
			}
			after := failover(b)
			begin := time.Now()
			var took []time.Duration
			for fasts := 0; fasts < inARow; {
				one := handOff(t, b, client, other)
				client, other = other, client
				took = append(took, one)
				if fasts++; one > fast {
					fasts = 0
				}
				if time.Since(begin) > soonOK {
					t.Fatalf("hand-offs are slow %v after the failover: %v", soonOK, took)
				}
			}
			t.Logf("hand-offs after the failover: %v", took)
			after()
			b.clean(limit, client, other) // a failover can lose a release, and the grant then lasts for its TTL
		}
	}
	planned := test(func(b *bed) func() {
		old := b.primary()
		replica := b.nodes[(slices.Index(b.nodes, old)+3)%6]
		replica.Must("CLUSTER", "FAILOVER")
		eventually(b.t, "the replica has taken over", func() error {
			if b.primary() == old {
				return errNotYet
			}
			return nil
		})
		return func() {}
	})
	t.Run("planned", func(t *testing.T) {
		t.Parallel()
		onSentinel(t, test(func(b *bed) func() {
			failOver(b)
			return func() {}
		}))
		on(t, "Cluster", redisCluster, planned)
	})
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		onSentinel(t, test(func(b *bed) func() {
			old := b.primary()
			old.Stop()
			b.group.AwaitFailover(old)
			return old.Continue
		}))
		on(t, "Cluster", redisCluster, test(func(b *bed) func() {
			old := b.primary()
			old.Stop()
			b.primary()
			return old.Continue
		}))
	})
}

// A detour is the address that a client connects to. Changing it affects later connections.
type detour struct{ to atomic.Pointer[string] }

func (d *detour) set(addr string) { d.to.Store(&addr) }

// openByDetour opens a go-redis client that connects to the current address of the detour.
func (b *bed) openByDetour(d *detour) *holdfast.Client {
	b.t.Helper()
	dial := func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		return dialBy(nil)(ctx, network, *d.to.Load())
	}
	s, err := newGoRedis(b.t.Context(), goRedisClient("", []string{b.nodes[0].Addr()}, dial), func(c *rediscore.Config) { c.Heartbeat = rediscore.DefaultHeartbeat })
	if err != nil {
		b.t.Fatal(err)
	}
	return b.own(s)
}

func TestDeadConnectionsLoseNoLease(t *testing.T) {
	t.Parallel()
	b := redisBed(t, viaGoRedis, servers.StartRedis(t, servers.RedisOptions{}))
	h := new(History)
	p := faultproxy.Start(t, b.nodes[0].Addr())
	d := new(detour)
	d.set(p.Addr())
	client := b.openByDetour(d)
	// Several connections are open. A dead connection must not be replaced by another dead one.
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for range 10 {
				record(h).must(t, client, fmt.Sprint("n", i), longTTL).mustUnlock(t)
			}
		})
	}
	all.Wait()
	lease := record(h).must(t, client, "n", 3*time.Second)
	over := lease.watch()
	var dead wires
	for range 3 {
		eventually(t, "the lease is renewed", renewed(lease))
		next := faultproxy.Start(t, b.nodes[0].Addr())
		d.set(next.Addr())
		p.Drop() // the connections made so far are dead
		dead = append(dead, p)
		p = next
	}
	eventually(t, "the lease is renewed", renewed(lease))
	select {
	case <-over:
		t.Fatalf("lost: %v", lease.Err())
	default:
	}
	lease.mustUnlock(t)
	check(t, h.Check())
	dead.each((*faultproxy.Proxy).Close)
	b.clean(soon, client)
}

func TestADeadSubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	b := redisBed(t, viaGoRedis, servers.StartRedis(t, servers.RedisOptions{}))
	h := new(History)
	p := faultproxy.Start(t, b.nodes[0].Addr())
	d := new(detour)
	d.set(p.Addr())
	client, other := b.openByDetour(d), b.open()
	holder := record(h).must(t, other, "n", longTTL)
	waiting := record(h).later(t, t.Context(), client, "n", longTTL)
	b.queued(other, "n", 1)
	eventually(t, "it listens", func() error {
		if listeners(b) == 0 {
			return errNotYet
		}
		return nil
	})
	before := connections(b.nodes[0])
	d.set(b.nodes[0].Addr())
	p.Drop() // the client is not told that its peer is gone
	eventually(t, "it listens and asks by other connections", func() error {
		listens, asks := false, false
		for _, conn := range connections(b.nodes[0]) {
			id, _, _ := strings.Cut(conn, " ")
			if slices.ContainsFunc(before, func(old string) bool { return strings.HasPrefix(old, id+" ") }) {
				continue
			}
			listens = listens || isListener(conn)
			asks = asks || strings.Contains(conn, " cmd=eval")
		}
		if !listens || !asks {
			return errNotYet
		}
		return nil
	})
	freed := time.Now()
	holder.mustUnlock(t)
	next := waiting.get(soon)
	if took := time.Since(freed); took > late {
		t.Errorf("the waiter heard of the free lock after %v", took)
	}
	next.mustUnlock(t)
	check(t, h.Check())
	p.Close()
	b.clean(soon, client, other)
}

func TestACleanUpDoesNotOvertakeWhatItUndoes(t *testing.T) {
	t.Parallel()
	b := redisBed(t, viaGoRedis, servers.StartRedis(t, servers.RedisOptions{}))
	p := faultproxy.Start(t, b.nodes[0].Addr())
	d := new(detour)
	d.set(p.Addr())
	client := b.openByDetour(d)
	b.warmUp(client)
	for i := range 5 {
		name := fmt.Sprint("n", i)
		seen := make(chan struct{})
		p.ToServer.When(mentions(name), sync.OnceFunc(func() {
			p.ToServer.Hold()
			close(seen)
		}))
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := client.TryLock(ctx, name, holdfast.TTL(longTTL))
			failed <- err
		}()
		ends(t, "the request is seen", seen)
		d.set(b.nodes[0].Addr()) // a connection made from now on is faster
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Fatalf("want the context's error, got %v", err)
		}
		time.Sleep(briefly) // so that a clean-up could overtake the request
		d.set(p.Addr())
		p.Heal()
		within(t, soon, "K: the lock is released", func() error { return keys(b.primary()) })
		// Nothing arrives later either.
		time.Sleep(briefly)
		check(t, keys(b.primary()))
	}
	b.clean(soon, client)
}

func TestAnOldPrimaryThatSentinelsCannotDemoteIsLeft(t *testing.T) {
	t.Parallel()
	onSentinel(t, func(t *testing.T, b *bed) {
		client, other := b.open(), b.open()
		handOff(t, b, client, other)
		handOff(t, b, other, client)
		old := b.primary()
		// The old primary stays a primary for the connected clients, and keeps their connections.
		old.Must("ACL", "SETUSER", "default", "-slaveof", "-replicaof", "-client|kill")
		failOver(b)
		next := b.primary()
		for i, c := range []*holdfast.Client{client, other} {
			name := fmt.Sprint("n", i)
			within(t, soon, "locks are taken on the new primary", func() error {
				lease, err := c.TryLock(t.Context(), name)
				if err != nil {
					return err
				}
				defer lease.Unlock(t.Context())
				if next.Must("EXISTS", lockKey(b, name)) != int64(1) {
					return errors.New("it is on the old one")
				}
				return nil
			})
		}
		handOff(t, b, client, other)
		within(t, soon, "hand-offs are fast", func() error {
			if took := handOff(t, b, client, other); took > late {
				return fmt.Errorf("one took %v", took)
			}
			return nil
		})
		old.Must("ACL", "SETUSER", "default", "+@all")
		b.clean(soon, client, other)
	})
}
