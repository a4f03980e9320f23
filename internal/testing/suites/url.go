package suites

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-lock/holdfast"
)

// openURL opens a client, which is closed at the end of the test.
func openURL(t *testing.T, url string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(Limited(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// URLWorks checks that clients with this URL can lock, wait for each other, renew and unlock.
func URLWorks(t *testing.T, url string) {
	t.Helper()
	ctx := Limited(t)
	one, two := openURL(t, url), openURL(t, url)
	lease, err := one.Lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
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
