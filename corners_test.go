package holdfast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// hookCtx runs f when its Err is asked for the first time.
type hookCtx struct {
	context.Context
	once sync.Once
	f    func()
}

func (c *hookCtx) Err() error {
	c.once.Do(c.f)
	return c.Context.Err()
}

func TestADowngradeInTheMomentOfTheUnlockDoesNotTouchTheNextHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		first := mustLock(t, a, "n")
		got := make(chan *holdfast.Lease, 1)
		go func() { got <- mustLock(t, a, "n") }()
		synctest.Wait()
		ctx := &hookCtx{Context: t.Context(), f: func() { mustUnlock(t, first) }}
		want(t, first.Downgrade(ctx), holdfast.ErrNotHeld)
		next := <-got
		r, err := b.TryRLock(t.Context(), "n")
		if err == nil {
			t.Errorf("a reader (%v, alive %v) beside the exclusive lease (alive %v)", r.Mode(), r.Err() == nil, next.Err() == nil)
		}
	})
}

func TestADowngradeDuringAHandoverLeavesNobodyBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		a, b := newClient(t, p), newClient(t, s)
		first := mustLock(t, a, "n")
		got := make(chan *holdfast.Lease, 2)
		for range 2 {
			go func() { l, _ := a.Lock(context.Background(), "n"); got <- l }()
			synctest.Wait()
		}
		p.set(func() {
			p.renew = func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
				time.Sleep(time.Second)
				return s.Renew(ctx, g)
			}
		})
		// The unlock starts in the window between usable() and unslot() of Downgrade.
		ctx := &hookCtx{Context: t.Context(), f: func() { go first.Unlock(context.Background()); synctest.Wait() }}
		first.Downgrade(ctx)
		next := <-got
		r, err := b.TryRLock(t.Context(), "n")
		if err == nil && next.Err() == nil {
			t.Errorf("a reader (alive %v) beside the exclusive lease (alive %v)", r.Err() == nil, next.Err() == nil)
			mustUnlock(t, r)
		}
		mustUnlock(t, next)
		select {
		case l := <-got:
			mustUnlock(t, l)
		case <-time.After(time.Hour):
			t.Error("second waiter hangs though the name is free")
		}
	})
}

func TestTimeInTheQueueDoesNotCountAsHolding(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		first := mustLock(t, c, "n")
		got := make(chan *holdfast.Lease, 1)
		go func() { got <- mustLock(t, c, "n", holdfast.MaxHold(10*time.Second)) }()
		time.Sleep(9 * time.Second)
		mustUnlock(t, first)
		next := <-got
		start := newClock()
		<-next.Done()
		start.want(t, 10*time.Second)
	})
}

func TestTimeInTheQueueDoesNotCountForMinHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s, holdfast.WithHandover(0, 0)), newClient(t, s)
		first := mustLock(t, c, "n")
		got := make(chan *holdfast.Lease, 1)
		go func() { got <- mustLock(t, c, "n", holdfast.MinHold(10*time.Second)) }()
		time.Sleep(11 * time.Second)
		mustUnlock(t, first)
		mustUnlock(t, <-got)
		if l, err := other.TryLock(t.Context(), "n"); err == nil {
			mustUnlock(t, l)
			t.Error("MinHold(10s) lease unlocked after 0 s leaves the name open")
		}
	})
}

func TestCloseTakesItsWaitersOutOfTheStoresQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder := newClient(t, s)
		c := newClient(t, newProxy(s))
		lease := mustLock(t, holder, "n")
		errs := make(chan error, 1)
		go func() { _, err := c.Lock(context.Background(), "n"); errs <- err }()
		synctest.Wait()
		c.Close()
		want(t, <-errs, holdfast.ErrClosed)
		synctest.Wait()
		if info, _ := holder.Inspect(t.Context(), "n"); len(info.Waiters) != 0 {
			t.Errorf("%d waiters in the store after Close", len(info.Waiters))
		}
		mustUnlock(t, lease)
		start := newClock()
		l, err := holder.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start.start); d > 0 {
			t.Errorf("next lock had to wait %v for the ghost", d)
		}
		mustUnlock(t, l)
	})
}

func TestCloseTakesBackAGrantWhoseAnswerWasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, r store.Request) (store.Answer, error) {
			s.Acquire(ctx, r)
			return store.Answer{}, hang(ctx)
		}
		c := newClient(t, p)
		errs := make(chan error, 1)
		go func() { _, err := c.Lock(context.Background(), "n"); errs <- err }()
		synctest.Wait()
		c.Close()
		synctest.Wait()
		other := newClient(t, s)
		if _, err := other.TryLock(t.Context(), "n"); err != nil {
			t.Error(err)
		}
	})
}

func TestOneStuckCleanUpDoesNotKeepCloseFromReleasingTheRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.release = func(ctx context.Context, name string, id store.ID, k store.Keep) error {
			if name == "bad" { // one node of a cluster is down
				return errNet
			}
			return s.Release(ctx, name, id, k)
		}
		c, other := newClient(t, p), newClient(t, s)
		bad, _ := mustLock(t, c, "bad"), mustLock(t, c, "good")
		bad.Unlock(t.Context())
		c.Close()
		if _, err := other.TryLock(t.Context(), "good"); err != nil {
			t.Errorf("good was not released by Close: %v", err)
		}
	})
}

func TestDoSaysSoIfTheClientWasClosedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s), newClient(t, s)
		err := c.Do(t.Context(), "n", func(ctx context.Context) error {
			go c.Close()
			time.Sleep(time.Second)
			mustUnlock(t, mustLock(t, other, "n")) // somebody else had it meanwhile
			return nil
		})
		if err == nil {
			t.Error("Do returns nil although the lock was given up while fn ran")
		}
	})
}

func TestTryLocksDoNotWaitForEachOtherInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = func(ctx context.Context, r store.Request) (store.Answer, error) { return store.Answer{}, hang(ctx) }
		c := newClient(t, p)
		start := newClock()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { c.TryLock(context.Background(), "n") })
		}
		wg.Wait()
		if d := time.Since(start.start); d > 6*time.Second {
			t.Errorf("20 TryLocks against a hung store took %v, one takes 5 s", d)
		}
	})
}

func TestTryLockIsToldOfAnOutageThatAnotherCallWaitsOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = func(ctx context.Context, r store.Request) (store.Answer, error) { return store.Answer{}, errNet }
		c := newClient(t, p)
		go c.Campaign(context.Background(), "n", func(ctx context.Context) error { return nil })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := newClock()
		_, err := c.TryLock(ctx, "n")
		if d := time.Since(start.start); d > 10*time.Second {
			t.Errorf("TryLock took %v: %v", d, err)
		}
	})
}

func TestOnceBehindALockIsToldThatItIsDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s), newClient(t, s)
		nop := func(context.Context) error { return nil }
		if err := other.Once(t.Context(), "n", time.Hour, nop); err != nil {
			t.Fatal(err)
		}
		go func() {
			if l, err := c.Lock(context.Background(), "n"); err == nil {
				l.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		start := newClock()
		err := c.Once(t.Context(), "n", time.Hour, nop, holdfast.Wait(0))
		if !errors.Is(err, holdfast.ErrDone) {
			t.Errorf("Once with Wait(0): %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		err = c.Once(ctx, "n", time.Hour, nop)
		if !errors.Is(err, holdfast.ErrDone) {
			t.Errorf("Once: %v after %v", err, time.Since(start.start))
		}
	})
}

func TestAFailedLockAllDoesNotCoolWhatItTook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		held := mustLock(t, b, "y")
		_, err := a.LockAll(t.Context(), []string{"x", "y"}, holdfast.MinHold(time.Hour), holdfast.Wait(time.Second))
		want(t, err, holdfast.ErrHeld)
		if l, err := b.TryLock(t.Context(), "x"); err != nil {
			t.Errorf("LockAll failed and left x closed: %v", err)
		} else {
			mustUnlock(t, l)
		}
		mustUnlock(t, held)
	})
}

func TestACancelledWaiterDoesNotCoolWhatItWasHanded(t *testing.T) {
	bad := 0
	for range 200 {
		bubble(t, func(t *testing.T) {
			a, b := pair(t)
			lease := mustLock(t, a, "n")
			ctx, cancel := context.WithCancel(t.Context())
			errs := make(chan error, 1)
			go func() {
				l, err := a.Lock(ctx, "n", holdfast.MinHold(time.Hour))
				if err == nil {
					l.Unlock(context.Background())
				}
				errs <- err
			}()
			synctest.Wait()
			cancel()
			mustUnlock(t, lease)
			if err := <-errs; err != nil {
				if _, err := b.TryLock(t.Context(), "n"); err != nil {
					bad++
				}
			}
		})
	}
	if bad > 0 {
		t.Errorf("%d of 200 cancelled Locks left the name closed for an hour", bad)
	}
}

func TestAnOutageThatFailsFastCausesNoStormOfRenewals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		var grants atomic.Int64
		p.renew = func(_ context.Context, g []store.Renewal) ([]store.Renewed, error) {
			grants.Add(int64(len(g)))
			return nil, errNet
		}
		c := newClient(t, p)
		const n = 1000
		for i := range n {
			mustLock(t, c, fmt.Sprint(i))
			time.Sleep(9 * time.Millisecond)
		}
		// 9 s. The first renewals are due at 10 s, all are lost at 38 s.
		time.Sleep(40 * time.Second)
		if per := grants.Load() / n; per > 26 { // 19 s at one in 1.5 s is 13
			t.Errorf("%d attempts per lease in 19 s, want one in 1.5 s", per)
		}
	})
}

func TestLeasesAtTheEndOfMaxHoldDoNotDisturbTheRenewalOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.renew = func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
			select { // a store with a latency of 50 ms
			case <-time.After(50 * time.Millisecond):
				return s.Renew(ctx, g)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c := newClient(t, p)
		normal := mustLock(t, c, "normal")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; !isDone(stop); i++ {
				mustLock(t, c, fmt.Sprint(i), holdfast.MaxHold(10020*time.Millisecond))
				time.Sleep(20 * time.Millisecond)
			}
		})
		var lost time.Duration
		start := newClock()
		select {
		case <-normal.Done():
			lost = time.Since(start.start)
		case <-time.After(5 * time.Minute):
		}
		close(stop)
		wg.Wait()
		if lost > 0 {
			t.Errorf("a healthy store with 50 ms of latency: lease lost after %v: %v", lost, normal.Err())
		}
	})
}

func TestABusyProcessDoesNotStarveOthersWithoutAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		noQueue := func() *proxy {
			p := newProxy(s)
			p.caps = func(c *store.Capabilities) { c.Instant = false; c.Features &^= store.FeatureQueue }
			return p
		}
		busy, other := newClient(t, noQueue()), newClient(t, noQueue())
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for !isDone(stop) {
					lease := mustLock(t, busy, "n")
					time.Sleep(time.Millisecond)
					mustUnlock(t, lease)
				}
			})
		}
		time.Sleep(7 * time.Millisecond)
		start := newClock()
		lease, err := other.Lock(t.Context(), "n", holdfast.Wait(time.Minute))
		if err != nil {
			t.Fatalf("starved for %v", time.Since(start.start))
		}
		mustUnlock(t, lease)
		close(stop)
		wg.Wait()
	})
}

func TestAtMostCountsRefusalsAndFailuresTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.wait = func(context.Context, string, store.ID) error { return errNet }
		holder, c := newClient(t, s), newClient(t, p)
		mustLock(t, holder, "n")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := c.Lock(ctx, "n", holdfast.Retry(holdfast.MaxAttempts(3, holdfast.Every(time.Second))))
		if n := p.acquires.Load(); n > 3 {
			t.Errorf("MaxAttempts(3) asked %d times: %v", n, err)
		}
	})
}

func TestAStoreThatWakesForNoReasonDoesNotMakeTheClientSpin(t *testing.T) {
	s := memstore.New()
	p := newProxy(s)
	p.wait = func(context.Context, string, store.ID) error { return nil } // allowed: "may return early without reason"
	holder, c := newClient(t, s), newClient(t, p)
	mustLock(t, holder, "n")
	c.Lock(t.Context(), "n", holdfast.Wait(200*time.Millisecond))
	if n := p.acquires.Load(); n > 250 {
		t.Errorf("%d acquires in 200 ms", n)
	}
}

func TestDoneOfAReentrantLeaseIsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		outer := mustLock(t, c, "n")
		inner, err := c.Lock(outer.Context(t.Context()), "n", holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		done := inner.Done()
		mustUnlock(t, inner)
		if !isDone(done) || !isDone(inner.Done()) {
			t.Errorf("Err is %v but Done is open", inner.Err())
		}
		mustUnlock(t, outer)
	})
}

func TestAPanicOfAStrategyDoesNotBlockTheName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c := newClient(t, p)
		p.acquire = func(context.Context, store.Request) (store.Answer, error) { return store.Answer{}, errNet }
		func() {
			defer func() { recover() }()
			c.Lock(t.Context(), "n", holdfast.Retry(holdfast.StrategyFunc(func(int, error) (time.Duration, bool) { panic("boo") })))
		}()
		p.set(func() { p.acquire = nil })
		l, err := c.Lock(t.Context(), "n", holdfast.Wait(time.Hour))
		if err != nil {
			t.Fatalf("after a panic that net/http would recover: %v", err)
		}
		mustUnlock(t, l)
	})
}

func TestAnObserverThatPanicsDoesNoHarm(t *testing.T) {
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

func TestAClosedNameHasNoLeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t)
		a.Campaign(t.Context(), "n", func(context.Context) error { return nil }, holdfast.MinHold(time.Hour))
		h, err := a.Leader(t.Context(), "n")
		if err == nil {
			t.Errorf("leader is %s, state %v", h.Owner, h.State)
		}
	})
}

func TestCloseInAnObserverStillReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var c *holdfast.Client
		other := newClient(t, s)
		c = newClient(t, s, holdfast.WithObserver(func(e holdfast.Event) {
			if e.Kind == holdfast.EventAcquired && e.Name == "b" {
				c.Close()
			}
		}))
		mustLock(t, c, "a")
		c.Lock(t.Context(), "b")
		if _, err := other.TryLock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
	})
}

func TestACallTellsOnceThatItWaits(t *testing.T) {
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

func TestCloseKeepsMinHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s), newClient(t, s)
		mustLock(t, c, "n", holdfast.MinHold(time.Minute))
		c.Close()
		if _, err := other.TryLock(t.Context(), "n"); err == nil {
			t.Error("MinHold(1m) lease closed after 0 s leaves the name open")
		}
	})
}

func TestAStoreMayGrantLessOnRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		n := 0
		p.renew = func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
			if n++; n > 1 {
				return nil, errNet
			}
			for i := range g {
				g[i].TTL = 5 * time.Second // as granted: may differ from the one asked for
			}
			return s.Renew(ctx, g)
		}
		c, other := newClient(t, p), newClient(t, s)
		lease := mustLock(t, c, "n")
		next := mustLock(t, other, "n")
		if lease.Err() == nil {
			t.Errorf("two holders: the first believes in %v more", time.Until(lease.Deadline()))
		}
		mustUnlock(t, next)
	})
}

func TestRenewInTheMomentOfTheUnlockSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		l := mustLock(t, c, "n")
		ctx := &hookCtx{Context: t.Context(), f: func() { mustUnlock(t, l) }}
		if err := l.Renew(ctx); err == nil {
			t.Error("Renew returns nil, the lease was unlocked before the call was sent")
		}
	})
}

// If the timer fired without end, the fake time would stand still and the test would hang.
func TestARenewalThatHangsDoesNotMakeTheTimerSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		stuck := make(chan struct{})
		p.renew = func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
			if p.renews.Load() == 1 {
				<-stuck // returns later than its context allows
			}
			return s.Renew(ctx, g)
		}
		c := newClient(t, p)
		lease := mustLock(t, c, "n")
		time.Sleep(12 * time.Second) // the renewal at 10 s is stuck
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // the next would be due at 22 s
		close(stuck)
		time.Sleep(time.Minute)
		mustUnlock(t, lease)
	})
}

func TestTheNextOfAClientKeepsThePlaceOfOneThatGaveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		holder, a, b := newClient(t, s), newClient(t, s), newClient(t, s)
		l := mustLock(t, holder, "n")
		order := make(chan string, 2)
		ctx, cancel := context.WithCancel(t.Context())
		go a.Lock(ctx, "n") // stands first
		synctest.Wait()
		var wg sync.WaitGroup
		defer wg.Wait()
		take := func(c *holdfast.Client, who string) {
			wg.Go(func() {
				l := mustLock(t, c, "n")
				order <- who
				mustUnlock(t, l)
			})
			synctest.Wait()
		}
		take(a, "a, which came first")
		take(b, "b, which came second")
		cancel()
		synctest.Wait()
		mustUnlock(t, l)
		if first := <-order; first != "a, which came first" {
			t.Errorf("first served: %s", first)
		}
		<-order
	})
}

func TestAPatientStrategyDoesNotHoldUpOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.caps = func(c *store.Capabilities) { c.Instant = false; c.Features &^= store.FeatureQueue }
		holder, c := newClient(t, s), newClient(t, p)
		l := mustLock(t, holder, "n")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if l, err := c.Lock(ctx, "n", holdfast.Retry(holdfast.Every(time.Hour))); err == nil {
				l.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		time.AfterFunc(time.Second, func() { l.Unlock(context.Background()) })
		start := newClock()
		mustUnlock(t, mustLock(t, c, "n"))
		if d := time.Since(start.start); d > 5*time.Second {
			t.Errorf("a call with the default strategy waited %v for a name that was free after 1 s", d)
		}
	})
}

func TestOneLostGrantThatCannotBeTakenOutDoesNotHoldUpOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.leave = func(ctx context.Context, name string, id store.ID) error {
			if name == "bad" || name == "bad2" {
				return errNet
			}
			return s.Leave(ctx, name, id)
		}
		c, other := newClient(t, p, holdfast.WithTTL(10*time.Minute)), newClient(t, s)
		mustLock(t, c, "bad", holdfast.MaxHold(5*time.Second))
		mustLock(t, c, "good", holdfast.MaxHold(5*time.Second))
		mustLock(t, c, "bad2", holdfast.MaxHold(5*time.Second))
		start := newClock()
		mustLock(t, other, "good")
		start.wantWithin(t, 5*time.Second, 10*time.Second)
	})
}

func TestWaitIsForAllNamesOfLockAllTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		for i, n := range []string{"x", "y", "z"} {
			l := mustLock(t, b, n)
			time.AfterFunc(time.Duration(i+1)*900*time.Millisecond, func() { l.Unlock(context.Background()) })
		}
		start := newClock()
		_, err := a.LockAll(t.Context(), []string{"x", "y", "z"}, holdfast.Wait(time.Second))
		if d := time.Since(start.start); d > time.Second {
			t.Errorf("LockAll with Wait(1s) took %v: %v", d, err)
		}
	})
}

func TestRenewSaysWhyItsContextEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		l := mustLock(t, c, "n")
		p.set(func() {
			p.renew = func(ctx context.Context, _ []store.Renewal) ([]store.Renewed, error) { return nil, hang(ctx) }
		})
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		want(t, l.Renew(ctx), why)
	})
}

func TestDoSaysLostIfTheClientWasClosedAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		err := c.Do(t.Context(), "n", func(context.Context) error {
			time.Sleep(2 * time.Second) // MaxHold is over: lost
			c.Close()
			return nil
		}, holdfast.MaxHold(time.Second))
		want(t, err, holdfast.ErrLost)
	})
}

func TestADowngradeNeedsTheGrantForItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		outer := mustLock(t, a, "n")
		inner, err := a.Lock(outer.Context(t.Context()), "n", holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		err = inner.Downgrade(t.Context())
		if _, rerr := b.TryRLock(t.Context(), "n"); rerr == nil {
			t.Errorf("the outer holder was not asked: it holds as %v, Downgrade: %v", outer.Mode(), err)
		}
	})
}

func TestASlowObserverDoesNotKeepRenewalsBack(t *testing.T) {
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

// Unlock with a local waiter must hand over or give up after one renewal.
func TestAHandoverAsksTheStoreAtMostOnce(t *testing.T) {
	for name, test := range map[string]struct {
		opts    []holdfast.Option
		latency time.Duration
		granted time.Duration
	}{
		"no slice":                     {opts: []holdfast.Option{holdfast.WithHandover(10, 0)}},
		"latency of half a TTL":        {opts: []holdfast.Option{holdfast.WithTTL(time.Second)}, latency: 460 * time.Millisecond},
		"store grants less than asked": {granted: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memstore.New()
				p := newProxy(s)
				p.acquire = func(ctx context.Context, r store.Request) (store.Answer, error) {
					if test.granted > 0 {
						r.TTL = test.granted
					}
					return s.Acquire(ctx, r)
				}
				p.renew = func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
					if p.renews.Load() > 1000 {
						return nil, errNet // ends the test
					}
					select {
					case <-time.After(test.latency):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					for i := range g {
						if test.granted > 0 {
							g[i].TTL = test.granted
						}
					}
					return s.Renew(ctx, g)
				}
				c := newClient(t, p, test.opts...)
				l := mustLock(t, c, "n")
				got := make(chan *holdfast.Lease, 1)
				go func() { got <- mustLock(t, c, "n") }()
				synctest.Wait()
				start := newClock()
				l.Unlock(t.Context())
				next := <-got
				if n := p.renews.Load(); n > 5 {
					t.Errorf("Unlock took %v and %d renewals", time.Since(start.start), n)
				}
				next.Unlock(t.Context())
			})
		})
	}
}

func TestADeadStandersStrategyDoesNotHoldUpOthersAfterAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			if p.acquires.Load() == 1 {
				return store.Answer{}, errNet // one hiccup
			}
			return s.Acquire(ctx, req)
		}
		c := newClient(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			if l, err := c.Lock(ctx, "n", holdfast.Retry(holdfast.Every(time.Hour))); err == nil {
				l.Unlock(context.Background())
			}
		}()
		time.Sleep(time.Minute)
		start := newClock()
		mustUnlock(t, mustLock(t, c, "n"))
		start.wantWithin(t, 0, time.Second)
	})
}

func TestCloseDuringLockAllDoesNotCoolWhatItTook(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := mustNew(t, s), newClient(t, s)
		held := mustLock(t, b, "y")
		over := make(chan error)
		go func() {
			_, err := a.LockAll(context.Background(), []string{"x", "y"}, holdfast.MinHold(time.Hour))
			over <- err
		}()
		synctest.Wait()
		a.Close()
		want(t, <-over, holdfast.ErrClosed)
		free(t, b, "x")
		mustUnlock(t, held)
	})
}

func TestAtLeastOfLockAllIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		set, err := a.LockAll(t.Context(), []string{"x", "y"}, holdfast.MinHold(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		set.Unlock(t.Context())
		for _, name := range []string{"x", "y"} {
			_, err := b.TryLock(t.Context(), name)
			want(t, err, holdfast.ErrHeld)
		}
	})
}

// Under real time: two leases share a grant, and the last unlock of another goroutine gives
// it away.
func TestContextsOfAReentrantLeaseEndBeforeTheLockIsAnyoneElses(t *testing.T) {
	s := memstore.New()
	c, other := newClient(t, s), newClient(t, s)
	for range 300 {
		outer := mustLock(t, c, "n")
		inner, err := c.Lock(outer.Context(context.Background()), "n", holdfast.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		contexts := []context.Context{outer.Context(context.Background()), inner.Context(context.Background())}
		var wg sync.WaitGroup
		wg.Go(func() { mustUnlock(t, outer) })
		wg.Go(func() { mustUnlock(t, inner) })
		next := mustLock(t, other, "n")
		for i, ctx := range contexts {
			if ctx.Err() == nil {
				t.Fatalf("the context of lease %d lives though another holds the lock", i)
			}
		}
		wg.Wait()
		mustUnlock(t, next)
	}
}
