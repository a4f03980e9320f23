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

// logged returns another client of the proxy, and its log from a level on.
func (w *world) logged(level slog.Level, opts ...holdfast.Option) (*holdfast.Client, *bytes.Buffer) {
	log := new(bytes.Buffer)
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level}))
	return w.client(append(opts, holdfast.WithLogger(logger))...), log
}

func TestObserver(t *testing.T) {
	all := scenarios{
		"it sees every event of a lock": func(w *world) {
			c, seen := w.observed()
			blocker := w.lock(w.other)
			got := w.later(c)
			time.Sleep(time.Second)
			mustUnlock(w, blocker)
			lease := <-got
			if e := seen.last(holdfast.EventAcquired); e.Name != "n" || e.Store != "memory" || e.Mode != store.Exclusive || e.Token != lease.Token() || e.Waited != time.Second {
				w.Errorf("acquired: %+v", e)
			}
			time.Sleep(15 * time.Second)
			if e := seen.last(holdfast.EventRenewed); e.Token != lease.Token() || e.Slack != 19*time.Second || e.Term != 29*time.Second || e.Left != 29*time.Second {
				w.Errorf("renewed: %+v", e)
			}
			got = w.later(c)
			time.Sleep(2 * time.Second)
			mustUnlock(w, lease)
			if e := seen.last(holdfast.EventReleased); e.Token != lease.Token() || e.Held != 17*time.Second {
				w.Errorf("released: %+v", e)
			}
			next := <-got
			if e := seen.last(holdfast.EventHandedOver); e.Token != next.Token() || e.Waited != 2*time.Second {
				w.Errorf("handed over: %+v", e)
			}
			w.breaks(next)
			<-next.Done()
			synctest.Wait()
			if e := seen.last(holdfast.EventLost); e.Token != next.Token() || !errors.Is(e.Err, holdfast.ErrLost) || e.Held == 0 {
				w.Errorf("lost: %+v", e)
			}
			for kind, n := range map[holdfast.EventKind]int{
				holdfast.EventWaiting: 2, holdfast.EventAcquired: 1, holdfast.EventHandedOver: 1, holdfast.EventRenewed: 2,
				holdfast.EventReleased: 1, holdfast.EventLost: 1, holdfast.EventError: 0,
			} {
				equal(w, "number of events: "+kind.String(), seen.count(kind), n)
			}
		},
		"it sees every failed call": func(w *world) {
			c, seen := w.observed()
			blocker := w.lock(w.other)
			w.try(c)
			if e := seen.last(holdfast.EventGaveUp); e.Name != "n" || e.Queued || !errors.Is(e.Err, holdfast.ErrHeld) {
				w.Errorf("after TryLock: %+v", e)
			}
			c.Lock(w.Context(), "n", holdfast.Wait(time.Second))
			if e := seen.last(holdfast.EventGaveUp); !e.Queued || e.Waited != time.Second || !errors.Is(e.Err, context.DeadlineExceeded) {
				w.Errorf("after a wait: %+v", e)
			}
			mustUnlock(w, blocker)
			synctest.Wait()
			w.p.acquire.set(failAcquire)
			c.Lock(w.Context(), "n")
			want(w, seen.last(holdfast.EventGaveUp).Err, holdfast.ErrUnavailable)
			equal(w, "calls that gave up", seen.count(holdfast.EventGaveUp), 3)
		},
		"one call causes one waiting event": func(w *world) {
			c, seen := w.observed()
			lease := w.lock(c)
			local, remote := w.later(c, holdfast.Meta("x")), w.later(w.other)
			mustUnlock(w, lease)
			mustUnlock(w, <-remote)
			mustUnlock(w, <-local)
			equal(w, "waiting events", seen.count(holdfast.EventWaiting), 1)
		},
		"panics are logged and do no harm": func(w *world) {
			c, log := w.logged(slog.LevelError, holdfast.WithObserver(func(holdfast.Event) { panic("boo") }))
			first := w.lock(c)
			served := w.lineUp(3, time.Second, c)
			time.Sleep(time.Minute) // renewed
			mustUnlock(w, first)
			served()
			<-w.lock(c, holdfast.NoRenew()).Done()
			mustUnlock(w, w.lock(c))
			c.Close()
			for _, kind := range []string{"waiting", "acquired", "handed over", "renewed", "lost", "released"} {
				if !strings.Contains(log.String(), kind) {
					w.Errorf("no word of the panic at %q:\n%s", kind, log.String())
				}
			}
		},
		"events have the mode in which the lock was acquired": func(w *world) {
			c, seen := w.observed()
			for kind, end := range map[holdfast.EventKind]func(*holdfast.Lease){
				holdfast.EventReleased: func(l *holdfast.Lease) { mustUnlock(w, l) },
				holdfast.EventLost: func(l *holdfast.Lease) {
					w.breaks(l)
					<-l.Done()
					synctest.Wait()
				},
			} {
				lease := w.lock(c)
				must(w, lease.Downgrade(w.Context()))
				end(lease)
				equal(w, "mode", seen.last(kind).Mode, holdfast.ModeExclusive)
				shared, err := c.RLock(w.Context(), "n")
				must(w, err)
				end(shared)
				equal(w, "mode", seen.last(kind).Mode, holdfast.ModeShared)
			}
		},
	}
	// A test that fails in an observer calls runtime.Goexit.
	for kind := holdfast.EventWaiting; kind <= holdfast.EventGaveUp; kind++ {
		all["one that ends its goroutine leaks no lock: "+kind.String()] = func(w *world) {
			var exits atomic.Int64
			c := w.client(holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == kind {
					exits.Add(1)
					runtime.Goexit()
				}
			}))
			limited, cancel := context.WithTimeout(w.Context(), 90*time.Second)
			defer cancel()
			blocker := w.lock(w.other)
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if lease, err := c.Lock(limited, "n"); err == nil {
						defer lease.Unlock(limited) // as a caller should
						time.Sleep(50 * time.Second)
					}
				})
				time.Sleep(time.Second)
			}
			mustUnlock(w, blocker)
			time.Sleep(5 * time.Second)
			w.p.fail(errNet) // for EventError and EventLost
			w.p.acquire.reset()
			time.Sleep(40 * time.Second)
			w.p.heal()
			wg.Wait()
			if exits.Load() == 0 {
				w.Fatal("the observer was not told")
			}
			w.mark()
			mustUnlock(w, w.lock(w.other))
			mustUnlock(w, w.lock(c))
			w.within(0, 35*time.Second) // what could not be released expires after its TTL
		}
	}
	// A lease ends while the observer is still told that it was acquired.
	for kind, end := range map[holdfast.EventKind]func(c *holdfast.Client){
		holdfast.EventLost:     func(*holdfast.Client) { time.Sleep(time.Minute) }, // it is not renewed
		holdfast.EventReleased: func(c *holdfast.Client) { go c.Close(); synctest.Wait() },
	} {
		all["the end of a lease comes after its begin: "+kind.String()] = func(w *world) {
			var seen recorder
			var c *holdfast.Client
			w.p.renew.set(failRenew)
			c = w.client(holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == holdfast.EventAcquired {
					end(c)
				}
				seen.observe(e)
			}))
			lease := w.lock(c)
			synctest.Wait()
			equal(w, "events", seen.kinds(holdfast.EventAcquired, kind), "acquired, "+kind.String())
			if e := seen.last(kind); e.ID != lease.ID() || e.Token != lease.Token() || kind == holdfast.EventLost && e.Reason != "expired" {
				w.Errorf("%+v", e)
			}
		}
	}
	all.run(t)
}

func TestLogger(t *testing.T) {
	scenarios{
		"only losses and failures are warnings": func(w *world) {
			c, log := w.logged(slog.LevelWarn)
			mustUnlock(w, w.lock(c))
			equal(w, "log of a healthy lock", log.String(), "")
			w.p.renew.set(failRenew)
			<-w.lock(c).Done()
			c.Close()
			synctest.Wait()
			for _, part := range []string{"level=WARN", `msg="holdfast: error"`, `msg="holdfast: lost"`, "name=n", "token=", "held=29s", "connection reset by peer"} {
				if !strings.Contains(log.String(), part) {
					w.Errorf("%s is not in the log:\n%s", part, log.String())
				}
			}
		},
		"an outage does not flood the log": func(w *world) {
			var seen recorder
			c, log := w.logged(slog.LevelInfo, holdfast.WithObserver(seen.observe))
			var leases []*holdfast.Lease
			for i := range 200 {
				leases = append(leases, mustLock(w, c, fmt.Sprint(i)))
			}
			w.p.renew.set(failRenew)
			time.Sleep(time.Minute)
			c.Close()
			synctest.Wait()
			lost, failed := seen.count(holdfast.EventLost), seen.count(holdfast.EventError)
			if lost != 200 || failed < 2_000 {
				w.Errorf("the observer saw %d losses and %d errors", lost, failed)
			}
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			logged := 0
			for _, line := range lines {
				logged++
				if _, count, ok := strings.Cut(line, "suppressed="); ok {
					n, _ := strconv.Atoi(count)
					logged += n
				}
			}
			if len(lines) > 60 || logged < failed/2 { // those after the last line are not counted
				w.Errorf("%d lines in the log, which account for %d of %d events", len(lines), logged, lost+failed)
			}
			runtime.KeepAlive(leases)
		},
	}.run(t)
}

func TestUnsetObserverCostsNoAllocation(t *testing.T) {
	ctx := context.Background()
	allocs := func(opts ...holdfast.Option) float64 {
		c := newClient(t, memstore.New(), opts...)
		return testing.AllocsPerRun(1000, func() { mustUnlock(t, mustLock(t, c, "n")) })
	}
	s := memstore.New()
	defer s.Close()
	req := store.Request{Name: "n", ID: store.NewID(), Mode: store.Exclusive, Weight: 1, TTL: time.Minute, Tokens: 1}
	ofStore := testing.AllocsPerRun(1000, func() {
		s.Acquire(ctx, req)
		s.Release(ctx, req.Name, req.ID, store.Keep{})
	})
	between(t, "allocations a pair", allocs(), 0, ofStore+1)
	// An observer also sees leases that are dropped, and each call of it is contained in a goroutine.
	between(t, "allocations a pair with an observer", allocs(holdfast.WithObserver(func(holdfast.Event) {})), 0, ofStore+8)
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
	for reported := false; !reported; {
		runtime.GC() // the cleanups run some time later
		select {
		case e := <-leaked:
			equal(t, "leaked", e.Name, "dropped")
			reported = true
		case <-time.After(10 * time.Millisecond):
		case <-timeout:
			t.Fatal("the leak was not reported")
		}
	}
	for range 3 {
		runtime.GC()
	}
	if lease := holdfast.LeaseFrom(carried); lease.Err() != nil || kept.Err() != nil {
		t.Error("a lease ended")
	}
	c.Close()
	equal(t, "further leaks", len(leaked), 0)
}
