package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestTheObserverSeesTheLifeOfALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var seen recorder
		c, other := newClient(t, s, holdfast.WithObserver(seen.observe)), newClient(t, s)
		blocker := mustLock(t, other, "n")
		got := make(chan *holdfast.Lease)
		go func() { got <- mustLock(t, c, "n") }()
		time.Sleep(time.Second)
		mustUnlock(t, blocker)
		lease := <-got
		if e := seen.last(holdfast.EventAcquired); e.Name != "n" || e.Store != "memory" || e.Mode != store.Exclusive || e.Token != lease.Token() || e.Waited != time.Second {
			t.Errorf("acquired: %+v", e)
		}
		time.Sleep(15 * time.Second)
		if e := seen.last(holdfast.EventRenewed); e.Token != lease.Token() || e.Slack != 29*time.Second {
			t.Errorf("renewed: %+v", e)
		}
		go func() { got <- mustLock(t, c, "n") }()
		time.Sleep(2 * time.Second)
		mustUnlock(t, lease)
		if e := seen.last(holdfast.EventReleased); e.Token != lease.Token() || e.Held != 17*time.Second {
			t.Errorf("released: %+v", e)
		}
		next := <-got
		if e := seen.last(holdfast.EventHandedOver); e.Token != next.Token() || e.Waited != 2*time.Second {
			t.Errorf("handed over: %+v", e)
		}
		if err := other.Break(t.Context(), "n", next.ID()); err != nil {
			t.Fatal(err)
		}
		<-next.Done()
		synctest.Wait()
		if e := seen.last(holdfast.EventLost); e.Token != next.Token() || !errors.Is(e.Err, holdfast.ErrLost) || e.Held == 0 {
			t.Errorf("lost: %+v", e)
		}
		for kind, n := range map[holdfast.EventKind]int{
			holdfast.EventWaiting: 2, holdfast.EventAcquired: 1, holdfast.EventHandedOver: 1, holdfast.EventRenewed: 2,
			holdfast.EventReleased: 1, holdfast.EventLost: 1, holdfast.EventError: 0,
		} {
			if got := seen.count(kind); got != n {
				t.Errorf("%d events of kind %v, want %d: %s", got, kind, n, seen.kinds())
			}
		}
	})
}

func TestTheLogWarnsOfLossesAndFailuresOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		p := newProxy(memstore.New())
		c := newClient(t, p, holdfast.WithLogger(logger))
		mustUnlock(t, mustLock(t, c, "quiet"))
		if log.Len() > 0 {
			t.Errorf("a healthy lock was logged: %s", log.String())
		}
		p.set(func() {
			p.renew = func(context.Context, []store.Renewal) ([]store.Renewed, error) { return nil, errNet }
		})
		lease := mustLock(t, c, "n")
		<-lease.Done()
		c.Close()
		synctest.Wait()
		text := log.String()
		for _, part := range []string{"level=WARN", `msg="holdfast: error"`, `msg="holdfast: lost"`, "name=n", "token=", "held=29s", "connection reset by peer"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s is not in the log:\n%s", part, text)
			}
		}
	})
}

func TestAnUnsetObserverCostsNoAllocation(t *testing.T) {
	ctx := context.Background()
	allocs := func(opts ...holdfast.Option) float64 {
		c := newClient(t, memstore.New(), opts...)
		return testing.AllocsPerRun(1000, func() {
			lease, err := c.Lock(ctx, "n")
			if err != nil {
				t.Fatal(err)
			}
			lease.Unlock(ctx)
		})
	}
	if n := allocs(); n > 3 {
		t.Errorf("%v allocations a pair, want at most 3", n)
	}
	if without, with := allocs(), allocs(holdfast.WithObserver(func(holdfast.Event) {})); with > without {
		t.Errorf("%v allocations with an observer, %v without", with, without)
	}
}
