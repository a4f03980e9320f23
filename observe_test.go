package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestObserverSeesEveryEventOfALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var seen recorder
		c, other := newClient(t, s, holdfast.WithObserver(seen.observe)), newClient(t, s)
		blocker := mustLock(t, other, "n")
		got := later(t, c, "n")
		time.Sleep(time.Second)
		mustUnlock(t, blocker)
		lease := <-got
		if e := seen.last(holdfast.EventAcquired); e.Name != "n" || e.Store != "memory" || e.Mode != store.Exclusive || e.Token != lease.Token() || e.Waited != time.Second {
			t.Errorf("acquired: %+v", e)
		}
		time.Sleep(15 * time.Second)
		if e := seen.last(holdfast.EventRenewed); e.Token != lease.Token() || e.Slack != 19*time.Second || e.Term != 29*time.Second || e.Left != 29*time.Second {
			t.Errorf("renewed: %+v", e)
		}
		got = later(t, c, "n")
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

func TestOnlyLossesAndFailuresAreLoggedAsWarnings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		p := newProxy(memstore.New())
		c := newClient(t, p, holdfast.WithLogger(logger))
		mustUnlock(t, mustLock(t, c, "quiet"))
		if log.Len() > 0 {
			t.Errorf("a healthy lock was logged: %s", log.String())
		}
		p.set(func() { p.renew = failRenew })
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

func TestUnsetObserverCostsNoAllocation(t *testing.T) {
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
	s := memstore.New()
	defer s.Close()
	req := store.Request{Name: "n", ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: time.Minute, Tokens: 1}
	ofStore := testing.AllocsPerRun(1000, func() {
		s.Acquire(ctx, req)
		s.Release(ctx, req.Name, req.ID, store.Keep{})
	})
	if n := allocs() - ofStore; n > 1 {
		t.Errorf("%v allocations a pair, want 1", n)
	}
	// An observer also sees leases that are dropped, and each call of it is contained in a goroutine.
	if n := allocs(holdfast.WithObserver(func(holdfast.Event) {})) - ofStore; n > 8 {
		t.Errorf("%v allocations a pair with an observer, want at most 8", n)
	}
}

func TestObserverSeesEveryFailedCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var seen recorder
		p := newProxy(s)
		c, other := newClient(t, p, holdfast.WithObserver(seen.observe)), newClient(t, s)
		blocker := mustLock(t, other, "n")
		c.TryLock(t.Context(), "n")
		if e := seen.last(holdfast.EventGaveUp); e.Name != "n" || e.Queued || !errors.Is(e.Err, holdfast.ErrHeld) {
			t.Errorf("after TryLock: %+v", e)
		}
		c.Lock(t.Context(), "n", holdfast.Wait(time.Second))
		if e := seen.last(holdfast.EventGaveUp); !e.Queued || e.Waited != time.Second || !errors.Is(e.Err, context.DeadlineExceeded) {
			t.Errorf("after a wait: %+v", e)
		}
		mustUnlock(t, blocker)
		synctest.Wait()
		p.set(func() { p.acquire = failAcquire })
		c.Lock(t.Context(), "n")
		if e := seen.last(holdfast.EventGaveUp); !errors.Is(e.Err, holdfast.ErrUnavailable) {
			t.Errorf("after an outage: %+v", e)
		}
		if n := seen.count(holdfast.EventGaveUp); n != 3 {
			t.Errorf("%d calls gave up, want 3", n)
		}
	})
}

func TestOutageDoesNotFloodTheLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		var seen recorder
		p := newProxy(memstore.New())
		c := newClient(t, p, holdfast.WithObserver(seen.observe), holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		var leases []*holdfast.Lease
		for i := range 200 {
			leases = append(leases, mustLock(t, c, fmt.Sprint(i)))
		}
		p.set(func() { p.renew = failRenew })
		time.Sleep(time.Minute)
		c.Close()
		synctest.Wait()
		lost, failed := seen.count(holdfast.EventLost), seen.count(holdfast.EventError)
		if lost != 200 || failed < 2_000 {
			t.Errorf("the observer saw %d losses and %d errors", lost, failed)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		logged := 0
		for _, line := range lines {
			if _, n, ok := strings.Cut(line, "count="); ok {
				more, err := strconv.Atoi(n)
				if err != nil {
					t.Fatal(err)
				}
				logged += more
			} else {
				logged++
			}
		}
		if len(lines) > 60 || logged != lost+failed {
			t.Errorf("%d lines in the log, which account for %d of %d events", len(lines), logged, lost+failed)
		}
		runtime.KeepAlive(leases)
	})
}

func TestADroppedLeaseIsReportedAsLeaked(t *testing.T) {
	leaked := make(chan holdfast.Event, 10)
	c := newClient(t, memstore.New(), holdfast.WithObserver(func(e holdfast.Event) {
		if e.Kind == holdfast.EventLeaked {
			leaked <- e
		}
	}))
	ctx := context.Background()
	mustUnlock(t, mustLock(t, c, "unlocked"))
	mustLock(t, c, "not renewed", holdfast.NoRenew())
	kept := mustLock(t, c, "kept")
	carried := mustLock(t, c, "carried").Context(ctx)
	func() {
		lease := mustLock(t, c, "dropped")
		lease.Context(lease.Context(ctx))
		lease.Done()
	}()
	timeout := time.After(10 * time.Second)
	for names := ""; names == ""; {
		runtime.GC() // the cleanups run some time later
		select {
		case e := <-leaked:
			names += e.Name
		case <-time.After(10 * time.Millisecond):
		case <-timeout:
			t.Fatal("the leak was not reported")
		}
		if names != "" && names != "dropped" {
			t.Errorf("%q was reported as leaked", names)
		}
	}
	for range 3 {
		runtime.GC()
	}
	if lease := holdfast.LeaseFrom(carried); lease.Err() != nil || kept.Err() != nil {
		t.Error("a lease ended")
	}
	c.Close()
	if len(leaked) > 0 {
		t.Errorf("also reported: %v", (<-leaked).Name)
	}
}

func TestPanickingObserverIsLoggedAndDoesNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
		c := newClient(t, memstore.New(), holdfast.WithLogger(logger), holdfast.WithObserver(func(holdfast.Event) { panic("boo") }))
		first := mustLock(t, c, "n")
		served := lineUp(t, 3, func(int) *holdfast.Client { return c }, "n", time.Second)
		time.Sleep(time.Minute) // renewed
		mustUnlock(t, first)
		wantOrder(t, served(), 3)
		<-mustLock(t, c, "n", holdfast.NoRenew()).Done()
		mustUnlock(t, mustLock(t, c, "n"))
		c.Close()
		for _, kind := range []string{"waiting", "acquired", "handed over", "renewed", "lost", "released"} {
			if !strings.Contains(log.String(), kind) {
				t.Errorf("no word of the panic at %q:\n%s", kind, log.String())
			}
		}
	})
}

// A test that fails in an observer calls runtime.Goexit.
func TestAnObserverThatEndsTheGoroutineLeaksNoLock(t *testing.T) {
	for _, kind := range []holdfast.EventKind{
		holdfast.EventWaiting, holdfast.EventAcquired, holdfast.EventHandedOver, holdfast.EventRenewed,
		holdfast.EventLost, holdfast.EventReleased, holdfast.EventError, holdfast.EventGaveUp,
	} {
		bubble(t, func(t *testing.T) {
			p := newProxy(memstore.New())
			var armed atomic.Bool
			var exits atomic.Int64
			c := newClient(t, p, holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == kind && armed.Load() {
					exits.Add(1)
					runtime.Goexit()
				}
			}))
			other := newClient(t, p)
			work := func(ctx context.Context) {
				lease, err := c.Lock(ctx, "n")
				if err != nil {
					return
				}
				defer lease.Unlock(ctx) // as a caller should
				time.Sleep(50 * time.Second)
			}
			limited, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			armed.Store(true)
			blocker := mustLock(t, other, "n")
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { work(limited) })
				time.Sleep(time.Second)
			}
			mustUnlock(t, blocker)
			time.Sleep(5 * time.Second)
			p.set(func() { p.renew, p.release = failRenew, failRelease }) // for EventError and EventLost
			time.Sleep(40 * time.Second)
			p.set(func() { p.renew, p.release = nil, nil })
			wg.Wait()
			armed.Store(false)
			if exits.Load() == 0 {
				t.Fatalf("%v: the observer was not told", kind)
			}
			start := newClock()
			mustUnlock(t, mustLock(t, other, "n"))
			mustUnlock(t, mustLock(t, c, "n"))
			start.wantWithin(t, 0, 35*time.Second) // what could not be released expires after its TTL
		})
	}
}

func TestOneCallCausesOneWaitingEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var seen recorder
		holder, c := newClient(t, s), newClient(t, s, holdfast.WithObserver(seen.observe))
		l := mustLock(t, holder, "n")
		served := lineUp(t, 2, func(int) *holdfast.Client { return c }, "n", 0)
		_ = served
		mustUnlock(t, l)
		served()
		c2 := mustLock(t, c, "n")
		seen.events = nil
		go func() { mustUnlock(t, mustLock(t, c, "n", holdfast.Meta("x"))) }()
		go func() { mustUnlock(t, mustLock(t, holder, "n")) }()
		synctest.Wait()
		mustUnlock(t, c2)
		time.Sleep(time.Second)
		if n := seen.count(holdfast.EventWaiting); n > 1 {
			t.Errorf("%d waiting events for one call", n)
		}
	})
}

func TestSlowObserverDoesNotDelayRenewals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), holdfast.WithObserver(func(e holdfast.Event) {
			if e.Kind == holdfast.EventLost {
				time.Sleep(time.Minute)
			}
		}))
		mustLock(t, c, "short", holdfast.MaxHold(9500*time.Millisecond))
		l := mustLock(t, c, "long")
		time.Sleep(50 * time.Second)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Minute)
	})
}

func TestTheNumbersOfHeldLocksAndWaitingCallsCanBeCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var held, waiting, gaveUp, calls atomic.Int64
		c := mustNew(t, memstore.New(), holdfast.WithObserver(func(e holdfast.Event) {
			if e.Kind == holdfast.EventHandedOver && !e.Queued {
				t.Error("handed over to a call that did not wait")
			}
			if e.Queued {
				waiting.Add(-1)
			}
			switch e.Kind {
			case holdfast.EventWaiting:
				waiting.Add(1)
			case holdfast.EventAcquired, holdfast.EventHandedOver:
				calls.Add(1)
				held.Add(1)
			case holdfast.EventReleased, holdfast.EventLost:
				held.Add(-1)
			case holdfast.EventGaveUp:
				calls.Add(1)
				gaveUp.Add(1)
			}
		}))
		const rounds = 200
		failed := int64(0)
		for range rounds {
			lease := mustLock(t, c, "n")
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					l, err := c.Lock(ctx, "n")
					if err != nil {
						atomic.AddInt64(&failed, 1)
						return
					}
					l.Unlock(ctx)
				})
			}
			synctest.Wait()
			wg.Go(cancel)
			lease.Unlock(t.Context())
			wg.Wait()
		}
		if held.Load() != 0 || waiting.Load() != 0 || gaveUp.Load() != failed {
			t.Errorf("%d held, %d waiting, %d gave up of %d", held.Load(), waiting.Load(), gaveUp.Load(), failed)
		}
		if n := calls.Load(); n != 4*rounds {
			t.Errorf("%d of %d calls have ended", n, 4*rounds)
		}
		c.Close()
	})
}

// A lease ends while the observer is still told that it was acquired.
func TestTheEndOfALeaseIsObservedAfterItWasAcquired(t *testing.T) {
	for kind, end := range map[holdfast.EventKind]func(c *holdfast.Client){
		holdfast.EventLost:     func(*holdfast.Client) { time.Sleep(time.Minute) }, // it is not renewed
		holdfast.EventReleased: func(c *holdfast.Client) { go c.Close(); synctest.Wait() },
	} {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var seen recorder
				var c *holdfast.Client
				p := newProxy(memstore.New())
				p.set(func() { p.renew = failRenew })
				c = newClient(t, p, holdfast.WithObserver(func(e holdfast.Event) {
					if e.Kind == holdfast.EventAcquired {
						end(c)
					}
					seen.observe(e)
				}))
				lease := mustLock(t, c, "n")
				synctest.Wait()
				if got, want := seen.kinds(holdfast.EventAcquired, kind), "acquired, "+kind.String(); got != want {
					t.Errorf("observed %s, want %s", got, want)
				}
				if e := seen.last(kind); e.ID != lease.ID() || e.Token != lease.Token() || kind == holdfast.EventLost && e.Reason != "expired" {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

func TestEventsHaveTheModeInWhichTheLockWasAcquired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var seen recorder
		c, other := newClient(t, s, holdfast.WithObserver(seen.observe)), newClient(t, s)
		for kind, end := range map[holdfast.EventKind]func(*holdfast.Lease){
			holdfast.EventReleased: func(l *holdfast.Lease) { mustUnlock(t, l) },
			holdfast.EventLost: func(l *holdfast.Lease) {
				other.Break(t.Context(), "n", l.ID())
				<-l.Done()
				synctest.Wait()
			},
		} {
			lease := mustLock(t, c, "n")
			if err := lease.Downgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
			end(lease)
			if e := seen.last(kind); e.Mode != holdfast.ModeExclusive || e.Token != lease.Token() {
				t.Errorf("%+v", e)
			}
			shared, err := c.RLock(t.Context(), "n")
			if err != nil {
				t.Fatal(err)
			}
			end(shared)
			if e := seen.last(kind); e.Mode != holdfast.ModeShared || e.Token != shared.Token() {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestALossThatUnlockFindsIsReportedWithItsReason(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var seen recorder
		c, other := newClient(t, s, holdfast.WithObserver(seen.observe)), newClient(t, s)
		lease := mustLock(t, c, "n")
		if err := other.Break(t.Context(), "n", lease.ID()); err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, holdfast.ErrLost) {
			t.Errorf("unlock: %v", err)
		}
		if e := seen.last(holdfast.EventLost); e.Reason != "gone" || !errors.Is(e.Err, holdfast.ErrLost) {
			t.Errorf("lost: %+v", e)
		}
	})
}

func TestAStrategyThatPanicsIsCountedAsACallThatGaveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var seen recorder
		c, other := newClient(t, s, holdfast.WithObserver(seen.observe)), newClient(t, s)
		mustLock(t, other, "n")
		func() {
			defer func() { recover() }()
			c.Lock(t.Context(), "n", holdfast.Retry(holdfast.StrategyFunc(func(int, error) (time.Duration, bool) { panic("no") })))
		}()
		if e := seen.last(holdfast.EventGaveUp); !e.Queued || e.Err == nil {
			t.Errorf("events: %s", seen.kinds())
		}
	})
}

func TestATTLThatTheStoreShortensIsLoggedOnce(t *testing.T) {
	for _, opts := range [][]holdfast.CallOption{nil, {holdfast.NoRenew()}} {
		bubble(t, func(t *testing.T) {
			var log bytes.Buffer
			s := memstore.New()
			p := newProxy(s)
			p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
				req.TTL = min(req.TTL, 10*time.Second)
				return s.Acquire(ctx, req)
			}
			p.renew = func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				for i := range grants {
					grants[i].TTL = min(grants[i].TTL, 10*time.Second)
				}
				return s.Renew(ctx, grants)
			}
			c := newClient(t, p, holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			for _, name := range []string{"a", "b"} {
				lease := mustLock(t, c, name, opts...)
				time.Sleep(8 * time.Second)
				mustUnlock(t, lease)
			}
			if n := strings.Count(log.String(), "shorter than requested"); n != 1 || !strings.Contains(log.String(), "asked=30s granted=10s") {
				t.Errorf("logged %d times:\n%s", n, log.String())
			}
		})
	}
}
