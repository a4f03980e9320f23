package gocronholdfast_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/gocronholdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestAFastJobRunsOnceATickOnHostsWithDifferentClocks(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *memstore.Store) {
		var all runs
		for host, late := range map[string]time.Duration{"a": 0, "b": 300 * time.Millisecond, "c": 4 * time.Second} {
			locker := newLocker(t, newClient(t, s), 10*time.Second)
			start(t, gocron.WithDistributedLocker(locker), late, func() { all.add(host) })
		}
		time.Sleep(time.Minute - time.Second)
		for range 5 {
			time.Sleep(time.Minute)
			if hosts := all.take(); !slices.Equal(hosts, []string{"a"}) {
				t.Errorf("a tick was run on %q, want only the host whose clock is first", hosts)
			}
		}
	})
}

func TestALongJobIsRenewedAndItsNextTicksAreSkipped(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *memstore.Store) {
		var all, skipped runs
		var later atomic.Bool // only the first run is long, because Shutdown waits without time passing
		for host, late := range map[string]time.Duration{"a": 0, "b": 300 * time.Millisecond} {
			locker := newLocker(t, newClient(t, s), 10*time.Second, holdfast.TTL(5*time.Second))
			start(t, gocron.WithDistributedLocker(locker), late, func() {
				all.add(host)
				if !later.Swap(true) {
					time.Sleep(150 * time.Second)
				}
				all.add(host + " ends")
			}, gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
				if !errors.Is(err, holdfast.ErrHeld) {
					t.Errorf("a tick was skipped because of %v, want ErrHeld", err)
				}
				skipped.add(host)
			})))
		}
		time.Sleep(3*time.Minute + 45*time.Second) // the ticks are at 1, 2 and 3 minutes; the first run ends at 3.5
		if hosts := all.take(); !slices.Equal(hosts, []string{"a", "a ends"}) {
			t.Errorf("runs: %q", hosts)
		}
		if n := len(skipped.take()); n != 5 {
			t.Errorf("%d ticks were skipped, want 5", n)
		}
	})
}

// A job that ignores the loss of its lock still runs when the next tick starts, and must not affect
// the lock of that one when it ends.
func TestAJobThatHasLostItsLockLeavesTheNextRunAlone(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *memstore.Store) {
		c := newClient(t, s)
		locker := newLocker(t, c, 10*time.Second)
		first, err := locker.Lock(t.Context(), "report")
		must(t, err)
		work := locker.Context(t.Context(), "report")
		info, err := c.Inspect(t.Context(), "report")
		must(t, err)
		must(t, c.Break(t.Context(), "report", info.Holders[0].ID))
		time.Sleep(15 * time.Second) // until the next renewal
		second, err := locker.Lock(t.Context(), "report")
		must(t, err)
		if err := context.Cause(work); !errors.Is(err, holdfast.ErrLost) || holdfast.TokenFrom(work) != info.Holders[0].Token {
			t.Errorf("the context of the first run ended with %v, want ErrLost", err)
		}
		if err := first.Unlock(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("the first run unlocks with %v, want ErrLost", err)
		}
		if err := locker.Context(t.Context(), "report").Err(); err != nil {
			t.Errorf("the context of the second run has ended: %v", err)
		}
		if err := second.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := context.Cause(locker.Context(t.Context(), "report")); !errors.Is(err, holdfast.ErrNotHeld) {
			t.Errorf("a context outside of the job ended with %v, want ErrNotHeld", err)
		}
	})
}

// A withoutKeep is a store that cannot keep names closed.
type withoutKeep struct{ store.Store }

func (w withoutKeep) Capabilities() store.Capabilities {
	c := w.Store.Capabilities()
	c.Features &^= store.FeatureKeep
	return c
}

// Otherwise all its locks would fail, and no job would run.
func TestALockerOnAStoreThatCannotKeepNamesClosedIsRefused(t *testing.T) {
	c := newClient(t, withoutKeep{memstore.New()})
	if _, err := gocronholdfast.NewLocker(c, time.Second); !errors.Is(err, holdfast.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
}

func TestShutdownOfTheSchedulerReleasesTheLock(t *testing.T) {
	inFakeTime(t, func(t *testing.T, s *memstore.Store) {
		c := newClient(t, s)
		locker := newLocker(t, c, 10*time.Second)
		scheduler := start(t, gocron.WithDistributedLocker(locker), 0, func(ctx context.Context) {
			<-locker.Context(ctx, "report").Done()
		})
		time.Sleep(time.Minute + 11*time.Second)
		if _, err := c.TryLock(t.Context(), "report"); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatalf("the job does not run: %v", err)
		}
		must(t, scheduler.Shutdown())
		synctest.Wait()
		lease, err := c.TryLock(t.Context(), "report")
		must(t, err)
		lease.Unlock(t.Context())
	})
}
