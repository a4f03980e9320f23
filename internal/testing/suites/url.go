package suites

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast"
)

// URLWorks checks that clients with this URL can lock, wait for each other, renew and unlock.
func URLWorks(t *testing.T, url string) {
	t.Helper()
	ctx := Limited(t)
	one, two := openURL(t, url), openURL(t, url)
	lease := locked(t, one, "a")
	var token int64
	ended := make(chan error)
	go func() {
		ended <- two.Do(ctx, "a", func(ctx context.Context) error { token = holdfast.TokenFrom(ctx); return nil })
	}()
	Eventually(t, "the other client does not wait", func() bool {
		lock, err := one.Inspect(ctx, "a")
		return err == nil && len(lock.Waiters) == 1
	})
	if err := errors.Join(lease.Renew(ctx), lease.Unlock(ctx), <-ended); err != nil {
		t.Error(err)
	}
	if token <= lease.Token() {
		t.Errorf("token %d after %d", token, lease.Token())
	}
}
