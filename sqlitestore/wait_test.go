package sqlitestore_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// wakes expects that a release through handle a ends a wait through handle b.
func wakes(t *testing.T, a, b store.Store) {
	t.Helper()
	req := take(t, a, "order")
	w := queue(t, b, "order")
	ended := make(chan error, 1)
	go func() { ended <- b.Wait(context.Background(), "order", w.ID) }()
	time.Sleep(time.Millisecond)
	release(t, a, req)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Wait: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Wait does not return")
	}
	suites.Leave(t, b, w)
}

func TestWakeUpsReachEveryKindOfHandle(t *testing.T) {
	path := newPath(t)
	a, b, c := open(t, path), open(t, path), open(t, path)
	sqlitestore.Loopback(c) // as on systems other than Linux
	for range 3 {
		wakes(t, a, a)
		wakes(t, a, b)
		wakes(t, a, c)
		wakes(t, c, b)
		wakes(t, c, c)
	}
}

// One datagram cannot hold the identities of that many waiters.
func TestDoneReachesAHundredWaiters(t *testing.T) {
	path := newPath(t)
	a, b := open(t, path), open(t, path)
	for _, s := range []*sqlitestore.Store{a, b} {
		sqlitestore.SetHeartbeat(s, time.Hour) // a waiter asks only once, and the machine may be slow
	}
	req := take(t, a, "order")
	waiters := make([]store.Request, 100)
	for i := range waiters {
		waiters[i] = queue(t, b, "order")
	}
	must(t, a.Release(t.Context(), "order", req.ID, store.Keep{State: store.Done, For: time.Hour}))
	for i, w := range waiters {
		eventually(t, "all are woken", func() bool {
			known, woken := sqlitestore.Waiting(b, "order", w.ID)
			if !known {
				t.Fatalf("waiter %d was forgotten before it was woken", i)
			}
			return woken
		})
	}
}
