package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

func TestARestartThatKeepsTheDataKeepsLocksAndTokens(t *testing.T) {
	t.Parallel()
	onSingle(t, func(t *testing.T, b *bed) {
		h := new(History)
		client, other := b.open(), b.open()
		record(h).must(t, client, "n", longTTL).mustUnlock(t)
		lease := record(h).must(t, client, "n", longTTL)
		waiting := record(h).later(t, t.Context(), other, "n", longTTL)
		b.queued(other, "n", 1)
		b.primary().Restart()
		if err := retry(func() error { return lease.Renew(t.Context()) }); err != nil {
			t.Errorf("the lease did not survive: %v", err)
		}
		lease.mustUnlock(t)
		waiting.get(soon).mustUnlock(t)
		record(h).must(t, client, "n", longTTL).mustUnlock(t)
		check(t, h.Check())
		b.clean(soon, client, other)
	})
}

// retry calls do until it does not return ErrUnavailable.
func retry(do func() error) (err error) {
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(10 * time.Millisecond) {
		if err = do(); !errors.Is(err, holdfast.ErrUnavailable) {
			return err
		}
	}
	return err
}

func TestTokensGrowOverARestartThatLosesTheData(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, b *bed) {
		h, resource := new(History), new(counter)
		client, other := b.open(), b.open()
		old, next := grantedTwice(t, h, resource, client, longTTL, func() *holdfast.Client {
			b.loseData()
			return other
		})
		check(t, h.CheckTokens())
		check(t, resource.check())
		next.mustUnlock(t)
		// There is nothing to release. Either the grant is gone, or an earlier attempt that
		// failed has released it.
		if err := old.Unlock(t.Context()); err != nil && !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the first holder's Unlock: %v", err)
		}
		b.clean(soon, client, other)
	})
}

// loseData restarts the primary without its data, which the replicas lose as well.
func (b *bed) loseData() {
	b.t.Helper()
	primary := b.primary()
	if b.group == nil {
		primary.Wipe()
		return
	}
	for _, s := range b.group.Sentinels { // otherwise the Sentinels may be faster and promote a replica
		s.Stop()
	}
	primary.Wipe()
	for _, node := range b.nodes {
		eventually(b.t, "the replicas follow the empty primary", func() error {
			info, err := node.Info("replication")
			if err == nil && node != primary && info["master_link_status"] != "up" {
				err = errors.New("no link")
			}
			if n, _ := node.Do("DBSIZE"); err == nil && n != int64(0) {
				err = fmt.Errorf("%s has %v keys", node.Addr(), n)
			}
			return err
		})
	}
	for _, s := range b.group.Sentinels {
		s.Continue()
	}
	b.group.AwaitSentinels()
}

func TestTokensGrowOverALossOfDataHoweverManyWereTaken(t *testing.T) {
	t.Parallel()
	onSingle(t, func(t *testing.T, b *bed) {
		s, err := store.Open(t.Context(), b.url)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// Each acquire reserves a block of tokens for hand-overs, as many busy processes would.
		const names, most = 3000, 1024
		var highest int64
		var mu sync.Mutex
		var all sync.WaitGroup
		for worker := range 16 {
			all.Go(func() {
				for i := worker; i < names; i += 16 {
					answer, err := s.Acquire(t.Context(), request(fmt.Sprint("n", i), most))
					if err != nil || !answer.Granted() {
						t.Errorf("%+v, %v", answer, err)
						return
					}
					mu.Lock()
					highest = max(highest, answer.Token+int64(answer.Tokens)-1)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		b.loseData()
		var answer store.Answer
		if err := retryAny(func() (err error) {
			answer, err = s.Acquire(t.Context(), request("n0", 1))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if answer.Token <= highest {
			t.Errorf("tokens: token %d after the loss, %d before: %d lower", answer.Token, highest, highest-answer.Token)
		}
	})
}

func request(name string, tokens int) store.Request {
	return store.Request{Name: name, ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: longTTL, Tokens: tokens, Owner: "test"}
}

// retryAny calls do until it succeeds.
func retryAny(do func() error) (err error) {
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(10 * time.Millisecond) {
		if err = do(); err == nil {
			return nil
		}
	}
	return err
}

func TestAHungServerGrantsNobodyBeforeTheHolderKnows(t *testing.T) {
	t.Parallel()
	onSingle(t, func(t *testing.T, b *bed) {
		h := new(History)
		client, other := b.open(), b.open()
		lease := record(h).must(t, client, "n", shortTTL)
		over := lease.watch()
		// The waiter keeps asking for longer than the server hangs.
		waiting := record(h).later(t, t.Context(), other, "n", shortTTL, holdfast.Retry(holdfast.Every(50*time.Millisecond)))
		b.queued(other, "n", 1)
		eventually(t, "the lease is renewed", renewed(lease))
		b.primary().Stop()
		ends(t, "the lease of the hung server ends", over)
		if !errors.Is(lease.Err(), holdfast.ErrLost) {
			t.Errorf("the lease ended with %v", lease.Err())
		}
		b.primary().Continue()
		next := waiting.get(soon)
		next.watch()
		eventually(t, "the next lease is renewed", renewed(next))
		next.mustUnlock(t)
		check(t, h.Check())
		b.clean(soon, client, other)
	})
}

func TestScriptsAreForgottenAndConnectionsKilledWhileInUse(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, b *bed) {
		const workers, rounds = 6, 30
		h, resource := new(History), new(counter)
		var clients []*holdfast.Client
		var all sync.WaitGroup
		stop := make(chan struct{})
		for range workers {
			client := b.open()
			clients = append(clients, client)
			all.Go(func() {
				for range rounds {
					if err := addOnce(t.Context(), h, client, resource); err != nil {
						t.Errorf("L: %v", err)
						return
					}
				}
			})
		}
		var chaos sync.WaitGroup
		primary := b.primary()
		chaos.Go(func() {
			for {
				primary.Do("SCRIPT", "FLUSH")
				killConnections(primary)
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
		all.Wait()
		close(stop)
		chaos.Wait()
		if n := len(resource.log); n < workers*rounds {
			t.Errorf("%d updates, want %d", n, workers*rounds)
		}
		check(t, h.Check())
		check(t, resource.check())
		b.clean(soon, clients...)
	})
}

// killConnections ends the connections of clients, but not those with which Sentinels check that
// the server is alive.
func killConnections(node *servers.Redis) {
	for _, conn := range connections(node) {
		if id, _, ok := strings.Cut(strings.TrimPrefix(conn, "id="), " "); ok {
			node.Do("CLIENT", "KILL", "ID", id)
		}
	}
}

// addOnce adds one to a resource under the lock "n". It tries again if the lock is lost meanwhile.
func addOnce(ctx context.Context, h *History, c *holdfast.Client, resource *counter) error {
	return addOnceFor(ctx, h, c, resource, longTTL)
}

func addOnceFor(ctx context.Context, h *History, c *holdfast.Client, resource *counter, ttl time.Duration, opts ...holdfast.CallOption) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done in %v", limit))
	defer cancel()
	for {
		retry := []holdfast.CallOption{holdfast.Retry(holdfast.Every(20 * time.Millisecond))}
		lease, err := record(h).lock(ctx, c, "n", ttl, append(retry, opts...)...)
		if err != nil {
			return err
		}
		err = resource.add(lease.Token())
		lease.believes()
		// If the store is down, the lock is released later in the background, or expires.
		if unlockErr := lease.unlock(ctx); unlockErr != nil && !errors.Is(unlockErr, holdfast.ErrLost) && !errors.Is(unlockErr, holdfast.ErrUnavailable) {
			return unlockErr
		}
		if err == nil {
			return nil
		}
	}
}
