package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// These tests check for bugs that other lock libraries had. Each is named after the library.

func TestRueidislockHoldersContextLivedBeyondTheNextGrantBecauseOfAHungRenewal(t *testing.T) {
	t.Parallel()
	const ttl = 2 * shortTTL
	b := single(t, servers.RedisOptions{})
	h := new(History)
	client, w := b.openBy()
	other := b.open()
	b.warmUp(client)
	// Replies are slow, but not too slow. The lease must count from the send time of its request.
	w[0].ToClient.Delay(ttl / 10)
	lease := record(h).must(t, client, "n", ttl)
	over := lease.watch()
	waiting := record(h).later(t, t.Context(), other, "n", ttl)
	b.queued(other, "n", 1)
	eventually(t, "the lease is renewed", renewed(lease))
	hung := make(chan struct{})
	w[0].ToServer.When(mentions("n"), func() {
		w.hold()
		close(hung)
	})
	ends(t, "a renewal hangs", hung)
	next := waiting.get(ttl + soon)
	next.watch()
	ends(t, "the lease", over)
	w.heal()
	eventually(t, "the next lease is renewed", renewed(next))
	next.mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client, other)
}

func TestRueidislockSlowReplyMadeAClientWaitForEverOnAFreeLock(t *testing.T) {
	t.Parallel()
	b := single(t, servers.RedisOptions{})
	h := new(History)
	client, w := b.openBy()
	b.warmUp(client)
	answered := w.holdRepliesAfter(t, "n")
	hasty, cancel := contextWithCancel(t)
	first := record(h).later(t, hasty, client, "n", longTTL)
	answered() // the lock is granted, but the client does not know that
	second := record(h).later(t, t.Context(), client, "n", longTTL)
	cancel()
	ends(t, "the cancelled wait", first.done)
	w.heal()
	second.get(soon).mustUnlock(t)
	check(t, h.Check())
	b.clean(soon, client)
}

func TestRueidislockCancelledLocalWaiterSwallowedTheWakeUp(t *testing.T) {
	t.Parallel()
	for _, from := range []struct {
		name   string
		client []holdfast.Option
		other  bool // another client releases the lock
	}{
		{name: "hand-over"},
		{name: "no hand-over", client: []holdfast.Option{holdfast.WithHandover(0, 0)}},
		{name: "another client", other: true},
	} {
		t.Run(from.name, func(t *testing.T) {
			t.Parallel()
			b := single(t, servers.RedisOptions{})
			h := new(History)
			var waits atomic.Int64
			client := b.open(append(from.client, holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == holdfast.EventWaiting {
					waits.Add(1)
				}
			}))...)
			other := b.open()
			took := time.Millisecond
			for i := range 200 {
				holding := client
				if from.other {
					holding = other
				}
				holder := record(h).must(t, holding, "n", longTTL)
				ctx, cancel := contextWithCancel(t)
				// One waiter is cancelled while it asks, or many waiters are cancelled at about
				// the time of the grant.
				crowd, delay := 1, rand.N(took)
				if i%2 == 0 {
					crowd, delay = 16, took/2+rand.N(took)
				}
				before := waits.Load()
				var cancelled []*turn
				for range crowd {
					cancelled = append(cancelled, record(h).later(t, ctx, client, "n", longTTL))
				}
				if crowd > 1 {
					eventually(t, "all wait", func() error {
						if waits.Load() < before+int64(crowd) {
							return errNotYet
						}
						return nil
					})
				}
				second := record(h).later(t, t.Context(), client, "n", longTTL)
				go func() {
					for begin := time.Now(); time.Since(begin) < delay; {
						runtime.Gosched()
					}
					cancel()
				}()
				begin := time.Now()
				holder.mustUnlock(t)
				took = min(time.Since(begin), 10*time.Millisecond)
				var all sync.WaitGroup
				for _, first := range cancelled {
					all.Go(func() {
						<-first.done
						if first.err == nil { // it was granted just before
							first.held.mustUnlock(t)
						}
					})
				}
				second.get(soon).mustUnlock(t)
				all.Wait()
			}
			b.clean(soon, client, other)
			check(t, h.Check())
		})
	}
}

func TestRueidislockStoreUnreachableBlocksSilently(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name string
		do   func(wires)
	}{{"connections hang", wires.hold}, {"connections end", wires.cut}} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			b := single(t, servers.RedisOptions{})
			var told atomic.Int64
			client, w := b.openBy(holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == holdfast.EventError {
					told.Add(1)
				}
			}))
			fault.do(w)
			failed := make(chan error, 1)
			go func() { // with a context that never ends
				_, err := client.Lock(context.Background(), "n", holdfast.TTL(shortTTL/4))
				failed <- err
			}()
			select {
			case err := <-failed:
				if !errors.Is(err, holdfast.ErrUnavailable) {
					t.Errorf("want ErrUnavailable, got %v", err)
				}
			case <-time.After(limit):
				t.Fatalf("Lock still blocks after %v", limit)
			}
			if told.Load() == 0 {
				t.Error("no failure was reported meanwhile")
			}
			w.heal()
			b.clean(limit, client)
		})
	}
}

func TestRedsyncAndRedislockCleanUpAfterATimedOutAcquireRanOnTheDeadContext(t *testing.T) {
	t.Parallel()
	b := single(t, servers.RedisOptions{})
	h := new(History)
	client, w := b.openBy()
	b.warmUp(client)
	answered := w.holdRepliesAfter(t, "n")
	ctx, cancel := contextWithCancel(t)
	waiting := record(h).later(t, ctx, client, "n", longTTL)
	answered()
	if token := storedToken(t, b, "n"); token == 0 {
		t.Fatal("not granted")
	}
	cancel()
	ends(t, "the cancelled call", waiting.done)
	if !errors.Is(waiting.err, context.Canceled) {
		t.Errorf("want the context's error, got %v", waiting.err)
	}
	w.lose()
	within(t, soon, "K: the orphan is gone long before its TTL", func() error { return keys(b.primary()) })
	b.clean(soon, client)
}

func TestACancelledCallReturnsAtOnceThoughTheServerHangs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bed) {
		// A single call may wait at least two seconds for its reply. All of these calls together
		// may take half of that sum.
		const calls, most = 15, 15 * time.Second
		var took time.Duration
		first := b.open()
		b.warmUp(first)
		b.clean(soon, first)
		for range calls {
			client, w := b.openBy()
			seen := make(chan struct{})
			first := sync.OnceFunc(func() {
				w.hold()
				close(seen)
			})
			w.each(func(p *faultproxy.Proxy) { p.ToServer.When(mentions("n"), first) })
			// The context also has a deadline, because a library might wait for the deadline.
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			failed := make(chan error, 1)
			go func() {
				_, err := client.Lock(ctx, "n")
				failed <- err
			}()
			select {
			case <-seen:
			case <-time.After(limit):
				t.Fatal("the request was not seen")
			}
			begin := time.Now()
			cancel()
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("want the context's error, got %v", err)
			}
			took += time.Since(begin)
			w.heal()
			b.clean(limit, client)
		}
		if took > most {
			t.Errorf("%d cancelled calls took %v", calls, took)
		}
	})
}

func TestRedislockTTLBelowAMillisecond(t *testing.T) {
	t.Parallel()
	b := single(t, servers.RedisOptions{})
	client := b.open()
	for _, ttl := range []time.Duration{-1, 0, 1, 999 * time.Microsecond, time.Millisecond} {
		if lease, err := client.Lock(t.Context(), "n", holdfast.TTL(ttl)); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("TTL %v: want ErrInvalid, got %v, %v", ttl, lease, err)
		}
		if err := keys(b.primary()); err != nil {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
	// A TTL with a fraction of a millisecond works.
	for _, ttl := range []time.Duration{longTTL, longTTL + 300*time.Microsecond} {
		lease, err := client.Lock(t.Context(), "n", holdfast.TTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		if token := storedToken(t, b, "n"); token != lease.Token() {
			t.Errorf("TTL %v: token %d in the store, want %d", ttl, token, lease.Token())
		}
		check(t, lease.Unlock(t.Context()))
	}
	b.clean(soon, client)
}

func TestRedislockRetryStrategyUsedTwiceHadNoTriesLeft(t *testing.T) {
	t.Parallel()
	b := single(t, servers.RedisOptions{})
	client, other := b.open(), b.open()
	holder, err := client.Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	const most = 4
	var asked atomic.Int64
	limited := holdfast.MaxAttempts(most, holdfast.Every(10*time.Millisecond))
	strategy := holdfast.StrategyFunc(func(attempt int, err error) (time.Duration, bool) {
		asked.Add(1)
		return limited.Next(attempt, err)
	})
	for use := range 3 {
		asked.Store(0)
		if _, err := other.Lock(t.Context(), "n", holdfast.Retry(strategy)); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("use %d: %v", use+1, err)
		}
		if n := asked.Load(); n != most {
			t.Errorf("use %d: %d attempts, want %d", use+1, n, most)
		}
	}
	check(t, holder.Unlock(t.Context()))
	b.clean(soon, client, other)
}

func TestFourLibrariesUnlockWithACancelledContextLeftTheLockHeld(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bed) {
		h := new(History)
		client, other := b.open(), b.open()
		for range 10 {
			lease := record(h).must(t, client, "n", longTTL)
			ctx, cancel := contextWithCancel(t)
			cancel()
			check(t, lease.unlock(ctx))
			next, err := other.TryLock(t.Context(), "n")
			if err != nil {
				t.Fatalf("after an Unlock with a cancelled context: %v", err)
			}
			check(t, next.Unlock(t.Context()))
		}
		check(t, h.Check())
		b.clean(soon, client, other)
	})
}

func TestRedisson6510LeakedACounterForEachName(t *testing.T) {
	t.Parallel()
	b := single(t, servers.RedisOptions{})
	client := b.open()
	for i := range 1000 {
		lease, err := client.Lock(t.Context(), fmt.Sprint("n", i))
		if err != nil {
			t.Fatal(err)
		}
		check(t, lease.Unlock(t.Context()))
	}
	if all := b.primary().Must("KEYS", "*").([]any); len(all) != 1 {
		t.Errorf("%d keys are left of 1000 names, want the one counter: %.200v", len(all), all)
	}
	b.clean(soon, client)
}

func TestRedisson3004LiveWaitersWereEvicted(t *testing.T) {
	t.Parallel()
	onSingle(t, func(t *testing.T, b *bed) {
		h := new(History)
		clients := []*holdfast.Client{b.openQuick(), b.openQuick(), b.openQuick(), b.openQuick()}
		holder := record(h).must(t, clients[0], "n", longTTL)
		var waiting []*turn
		for i, client := range clients[1:] {
			waiting = append(waiting, record(h).later(t, t.Context(), client, "n", longTTL))
			b.queued(clients[0], "n", i+1)
		}
		order := waitersOf(t, clients[0], "n")
		// The waiters stay queued, in this order, for several times as long as a dead waiter
		// would.
		for begin := time.Now(); time.Since(begin) < 4*quick; time.Sleep(quick / 20) {
			if got := waitersOf(t, clients[0], "n"); !slices.Equal(got, order) {
				t.Fatalf("the queue was %v and is %v after %v", order, got, time.Since(begin))
			}
		}
		holder.mustUnlock(t)
		for i, w := range waiting {
			next := w.get(soon)
			if left := waitersOf(t, clients[0], "n"); !slices.Equal(left, order[i+1:]) {
				t.Errorf("waiter %d was served out of turn: %v are left of %v", i, left, order)
			}
			next.mustUnlock(t)
		}
		check(t, h.Check())
		b.clean(soon, clients...)
	})
}

func waitersOf(t testing.TB, c *holdfast.Client, name string) (ids []store.ID) {
	t.Helper()
	info, err := c.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range info.Waiters {
		ids = append(ids, w.ID)
	}
	return ids
}

func TestRedisson3004DeadlinesOfDeadWaitersAddUp(t *testing.T) {
	t.Parallel()
	onSingle(t, func(t *testing.T, b *bed) {
		h := new(History)
		client, other := b.open(), b.open()
		holder := record(h).must(t, client, "n", longTTL)
		// The sum of the heartbeats would be ten times the bound.
		const dead = 40
		child := spawn(t, h, order{Role: "wait", URLs: []string{b.url}, Names: []string{"n"}, TTL: longTTL, Clients: dead, Who: "dead"}, nil)
		b.queued(client, "n", dead)
		waiting := record(h).later(t, t.Context(), other, "n", longTTL)
		b.queued(client, "n", dead+1)
		child.kill()
		holder.mustUnlock(t)
		waiting.get(client.Capabilities().Heartbeat + soon).mustUnlock(t)
		check(t, h.Check())
		b.clean(soon, client, other)
	})
}

func TestRedissonTokenRestartsWhenACounterIsDeletedOrExpires(t *testing.T) {
	t.Parallel()
	b := single(t, servers.RedisOptions{})
	h := new(History)
	client, other := b.open(), b.open()
	for i := range 10 {
		// Take the lock right after another one, and after a pause.
		record(h).must(t, client, "n", longTTL).mustUnlock(t)
		if ms := b.primary().Must("PTTL", "holdfast:token"); ms != int64(-1) {
			t.Errorf("the counter of tokens expires in %v ms", ms)
		}
		b.primary().Must("DEL", "holdfast:token")
		record(h).must(t, other, "n", longTTL).mustUnlock(t)
		if i%3 == 0 {
			b.primary().Must("FLUSHALL")
		}
	}
	check(t, h.Check())
	b.clean(soon, client, other)
}

func TestDynamolock280HeartbeatWithALostReplyIsNotALostLock(t *testing.T) {
	t.Parallel()
	onSingle(t, func(t *testing.T, b *bed) {
		h := new(History)
		var failed atomic.Int64
		client, w := b.openBy(holdfast.WithObserver(func(e holdfast.Event) {
			if e.Kind == holdfast.EventError {
				failed.Add(1)
			}
		}))
		b.warmUp(client)
		// No connection ends. Only the reply does not arrive within the timeout of a renewal.
		lease := record(h).must(t, client, "n", 3*shortTTL)
		answered := w.holdRepliesAfter(t, "n")
		answered()
		eventually(t, "the renewal is given up", func() error {
			if failed.Load() == 0 {
				return errNotYet
			}
			return nil
		})
		check := renewed(lease)
		w.heal()
		eventually(t, "the lease is renewed", check)
		lease.mustUnlock(t)
		if err := h.Check(); err != nil {
			t.Error(err)
		}
		b.clean(soon, client)
	})
}

func TestPglockLoserSleptAWholeLeaseAlthoughTheLockWasFreed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b *bed) {
		// There are so many rounds that polling would take too long, so each waiter must be
		// woken.
		const rounds = 20
		h := new(History)
		client, other := b.open(), b.open()
		var waited time.Duration
		for range rounds {
			holder := record(h).must(t, client, "n", longTTL)
			waiting := record(h).later(t, t.Context(), other, "n", longTTL)
			b.queued(client, "n", 1)
			freed := time.Now()
			holder.mustUnlock(t)
			next := waiting.get(soon)
			waited += time.Since(freed)
			next.mustUnlock(t)
		}
		if waited > soon {
			t.Errorf("%d times the lock was free for %v in all before the waiter had it", rounds, waited)
		}
		check(t, h.Check())
		b.clean(soon, client, other)
	})
}

// keys returns an error that names the keys that are left on a server.
func keys(node *servers.Redis) error {
	all := node.Must("KEYS", "*").([]any)
	all = slices.DeleteFunc(all, func(key any) bool { return !strings.HasPrefix(key.(string), "holdfast:") || key == "holdfast:token" })
	if len(all) > 0 {
		return fmt.Errorf("keys: %v", all)
	}
	return nil
}
