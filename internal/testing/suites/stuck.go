package suites

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// StuckNames checks that names whose rows another session has locked do not delay other names. Callers of
// these names, of which there are many, must not keep the connections of the others, nor fail the calls that
// share a statement with them. There must be least pairs of calls on other names in three seconds.
func StuckNames(t *testing.T, s store.Store, least int64, lock func(names ...string) (unlock func())) {
	t.Helper()
	c := Client(t, s)
	stuck := []string{"stuck0", "stuck1", "stuck2"}
	for _, name := range stuck { // so that there are rows
		must(t, Pair(t.Context(), c, name))
	}
	unlock := lock(stuck...)
	ctx, cancel := context.WithCancel(t.Context())
	var wg, others sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for ctx.Err() == nil {
				Pair(ctx, c, stuck[i%len(stuck)])
			}
		})
	}
	held := locked(t, c, "held", holdfast.TTL(4*time.Second))
	var pairs atomic.Int64
	until := time.Now().Add(3 * time.Second)
	for i := range 20 {
		others.Go(func() {
			for time.Now().Before(until) {
				if err := Pair(t.Context(), c, fmt.Sprint("other", i)); err != nil {
					t.Errorf("a call on another name: %v", err)
				}
				pairs.Add(1)
			}
		})
	}
	others.Wait()
	t.Logf("%d pairs of calls on other names", pairs.Load())
	if pairs.Load() < least {
		t.Error("the stuck names delay others")
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Errorf("a lease of another name: %v", err)
	}
	unlock()
	if err := Pair(t.Context(), c, stuck[0]); err != nil {
		t.Errorf("after the end of the other session: %v", err)
	}
	cancel()
	wg.Wait()
}

// StuckLease checks that a row that another session has locked costs no lease on another name, even if
// the client waits less long for a renewal than the store for the row.
func StuckLease(t *testing.T, s store.Store, ttl time.Duration, lock func(names ...string) (unlock func())) {
	t.Helper()
	c := Client(t, s, holdfast.WithTTL(ttl))
	other, stuck := locked(t, c, "name0"), locked(t, c, "name1")
	shared, err := c.RLock(t.Context(), "name2")
	must(t, err)
	lock("name1")
	<-stuck.Done()
	time.Sleep(ttl)
	if err := errors.Join(other.Err(), shared.Err()); err != nil {
		t.Error(err)
	}
}

// StuckRenewals checks that renewals of other names in the same call do not wait for each locked row.
func StuckRenewals(t *testing.T, s store.Store, lock func(names ...string) (unlock func())) {
	t.Helper()
	var renewals []store.Renewal
	var stuck []string
	for i := range 16 {
		r := Request(fmt.Sprint("name", i))
		Granted(t, s, r)
		renewals = append(renewals, Renewal(r))
		if i%2 == 1 {
			stuck = append(stuck, r.Name)
		}
	}
	unlock := lock(stuck...)
	begin := time.Now()
	out, err := s.Renew(Limited(t), renewals)
	if took := time.Since(begin); err != nil || took > s.Capabilities().Timeout {
		t.Fatalf("Renew: %v after %v", err, took)
	}
	for i, o := range out {
		if !slices.Contains(stuck, renewals[i].Name) {
			if o.Status != store.Extended || o.Err != nil {
				t.Errorf("%s: %+v", renewals[i].Name, o)
			}
		} else if o.Status != store.Unknown || !strings.Contains(fmt.Sprint(o.Err), "another session has locked the row") {
			t.Errorf("%s, which is locked: %+v", renewals[i].Name, o)
		}
	}
	unlock()
	Eventually(t, "not all are renewed after the end of the other session", func() bool {
		out, err := s.Renew(Limited(t), renewals)
		return err == nil && allExtended(out)
	})
}

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
