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
