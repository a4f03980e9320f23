package suites

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// URLWorks checks that clients with this URL can lock, wait for each other, renew and unlock.
func URLWorks(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	one, err := holdfast.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := holdfast.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	lease, err := one.Lock(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan *holdfast.Lease)
	go func() {
		defer close(granted)
		next, err := two.Lock(ctx, "a")
		if err != nil {
			t.Error(err)
		}
		granted <- next
	}()
	for waiters := 0; waiters == 0; {
		lock, err := one.Inspect(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		waiters = len(lock.Waiters)
	}
	if err := lease.Renew(ctx); err != nil {
		t.Error(err)
	}
	if err := lease.Unlock(ctx); err != nil {
		t.Error(err)
	}
	next := <-granted
	if next == nil {
		t.FailNow()
	}
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	if err := next.Unlock(ctx); err != nil {
		t.Error(err)
	}
}
