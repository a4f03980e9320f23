package suites

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// PoolConns is the size of the pool.
const PoolConns = 10

// PoolUsedUp checks a store whose application takes all connections of its pool, as take does. Calls must fail
// in time and say why, a lease must end for its holder before the server can give its name to others, and
// nothing may stay behind. Other is a store of another program.
func PoolUsedUp(t *testing.T, s, other store.Store, take func() (giveBack func())) {
	t.Helper()
	c := Client(t, s)
	long, unlocked, short := locked(t, c, "long"), locked(t, c, "unlocked"), locked(t, c, "short", holdfast.TTL(2*time.Second))
	giveBack := take()
	var wg sync.WaitGroup
	for what, call := range map[string]func() error{
		"Lock":    func() error { _, err := c.Lock(t.Context(), "lock"); return err },
		"TryLock": func() error { _, err := c.TryLock(t.Context(), "try"); return err },
		"Unlock":  func() error { return unlocked.Unlock(t.Context()) },
	} {
		wg.Go(func() {
			begin := time.Now()
			err := call()
			if took := time.Since(begin); took > 6*time.Second {
				t.Errorf("%s took %v", what, took)
			}
			if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "all 10 connections of the pool are in use") {
				t.Errorf("%s: %v, want ErrUnavailable that says why", what, err)
			}
		})
	}
	<-short.Done()
	if granted(t, other, "short") && time.Since(short.Deadline()) < 100*time.Millisecond { // the margin of the lease; a busy machine may take longer
		t.Error("the server gave the name to another client before its time was over")
	}
	if err := short.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("the lease that could not be renewed: %v", err)
	}
	wg.Wait()
	giveBack()
	if err := long.Renew(t.Context()); err != nil {
		t.Errorf("the lease with a longer TTL: %v", err)
	}
	for _, name := range []string{"lock", "try", "unlocked", "short"} {
		for begin := time.Now(); !granted(t, other, name); time.Sleep(20 * time.Millisecond) {
			if time.Since(begin) > 40*time.Second {
				t.Fatalf("%s is not free", name)
			}
		}
	}
}

// granted reports whether another client is granted a name.
func granted(t *testing.T, s store.Store, name string) bool {
	t.Helper()
	req := Request(name)
	req.ID = store.ID{1}
	a, err := s.Acquire(t.Context(), req)
	must(t, err)
	return a.Granted()
}
