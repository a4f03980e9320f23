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

// retry calls do until it does not return ErrUnavailable.
func retry(do func() error) (err error) {
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(10 * time.Millisecond) {
		if err = do(); !errors.Is(err, holdfast.ErrUnavailable) {
			return err
		}
	}
	return err
}

func TestTokensGrowOverALossOfDataHoweverManyWereTaken(t *testing.T) {
	t.Parallel()
	b := single(t, servers.RedisOptions{})
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
	b.primary().Wipe()
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
