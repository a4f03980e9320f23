package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// retry calls do until it does not return ErrUnavailable.
func retry(do func() error) (err error) {
	retryAny(func() error {
		if err = do(); errors.Is(err, holdfast.ErrUnavailable) {
			return err
		}
		return nil
	})
	return err
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
func addOnce(ctx context.Context, h *History, c *holdfast.Client, resource *counter, ttl time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done in %v", limit))
	defer cancel()
	for {
		lease, err := record(h).lock(ctx, c, "n", ttl, patient)
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
