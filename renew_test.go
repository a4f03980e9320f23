package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestLeaseIsRenewedWhileItIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c, other := newClient(t, p), newClient(t, p.Store)
		lease := mustLock(t, c, "n")
		for range 100 {
			time.Sleep(30 * time.Second)
			if _, err := other.TryLock(t.Context(), "n"); !errors.Is(err, holdfast.ErrHeld) {
				t.Fatalf("TryLock of another client: %v", err)
			}
		}
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		if n := p.renews.Load(); n < 295 || n > 310 {
			t.Errorf("%d renewals in 50 minutes, want one every 10 s", n)
		}
		time.Sleep(time.Second) // so that the unlock does not coincide with a renewal
		mustUnlock(t, lease)
		before := p.renews.Load()
		time.Sleep(time.Hour)
		if n := p.renews.Load(); n != before {
			t.Errorf("%d renewals after the unlock", n-before)
		}
	})
}

func TestRenewalsAreBatched(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		const n = 1000
		for i := range n {
			mustLock(t, c, fmt.Sprint(i))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		// There are three rounds of four calls, and a few more because the leases do not start
		// together.
		if calls := p.renews.Load(); calls < 12 || calls > 24 {
			t.Errorf("%d calls to renew %d leases for 30 s", calls, n)
		}
		info := 0
		for lock, err := range c.List(t.Context(), "") {
			if err != nil || len(lock.Holders) != 1 {
				t.Fatal(lock, err)
			}
			info++
		}
		if info != n {
			t.Errorf("%d of %d locks are held", info, n)
		}
	})
}

// The test of G2 uses a store that does not return even when its context ends.
func TestHungRenewalDoesNotDelayTheLossSignal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		never := make(chan struct{})
		p.renew = func(context.Context, []store.Renewal) ([]store.Renewed, error) {
			<-never
			return nil, errNet
		}
		c, next := newClient(t, p), newClient(t, p.Store)
		start := newClock()
		lease := mustLock(t, c, "n")
		work := lease.Context(t.Context())
		granted := make(chan time.Duration)
		go func() {
			mustLock(t, next, "n")
			granted <- time.Since(start.start)
		}()
		<-work.Done()
		start.want(t, 29*time.Second)
		want(t, context.Cause(work), holdfast.ErrLost)
		if !isDone(lease.Done()) {
			t.Error("Done is open after the loss")
		}
		want(t, lease.Err(), holdfast.ErrLost)
		if at := <-granted; at < 30*time.Second {
			t.Errorf("the next holder was granted after %v", at)
		}
		close(never)
	})
}

// In rueidislock a hung renewal moved the deadline, so the holder's context ended seconds after
// the grant of the next holder. Here the deadline counts from the last call that got a reply.
func TestHungRenewalDoesNotMoveTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		start := newClock()
		lease := mustLock(t, c, "n")
		time.Sleep(15 * time.Second) // renewed once, sent at 10 s
		p.set(func() { p.renew = hangRenew })
		<-lease.Done()
		start.wantWithin(t, 38*time.Second, 39*time.Second) // renewals may be a little early
	})
}

func TestDeadlineCountsFromTheSendTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		slow := func(ctx context.Context, req store.Request) (store.Answer, error) {
			answer, err := s.Acquire(ctx, req)
			time.Sleep(4 * time.Second) // a slow reply
			return answer, err
		}
		p.acquire = slow
		p.renew = failRenew
		c := newClient(t, p)
		start := newClock()
		lease := mustLock(t, c, "n")
		if got := time.Until(lease.Deadline()); got != 25*time.Second {
			t.Errorf("deadline in %v, want 29 s less the 4 s of the answer", got)
		}
		<-lease.Done()
		start.want(t, 29*time.Second)

		// The same for a renewal.
		p.set(func() {
			p.acquire = nil
			p.renew = func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				out, err := s.Renew(ctx, grants)
				time.Sleep(4 * time.Second)
				return out, err
			}
		})
		lease = mustLock(t, c, "m", holdfast.NoRenew())
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Until(lease.Deadline()); got != 25*time.Second {
			t.Errorf("deadline in %v after a slow renewal, want 25 s", got)
		}
		mustUnlock(t, lease)

		// The same applies to a renewal by the client itself, which is sent at 10 s and gets its
		// reply at 14 s.
		start = newClock()
		lease = mustLock(t, c, "o")
		time.Sleep(15 * time.Second)
		if got := lease.Deadline().Sub(start.start); got != 39*time.Second {
			t.Errorf("deadline at %v after a slow renewal sent at 10 s, want 39 s", got)
		}
		mustUnlock(t, lease)
	})
}

func TestReplyAfterTheEndOfTheLeaseIsNotAGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			answer, err := s.Acquire(ctx, req)
			if p.acquires.Load() == 1 {
				time.Sleep(2 * time.Second)
			}
			return answer, err
		}
		c := newClient(t, p, holdfast.WithTTL(time.Second))
		lease := mustLock(t, c, "n")
		if left := time.Until(lease.Deadline()); left != 950*time.Millisecond {
			t.Errorf("lease with %v left", left)
		}
		if n := p.acquires.Load(); n != 2 {
			t.Errorf("asked %d times, want a second time", n)
		}
		mustUnlock(t, lease)
	})
}

// dynamolock treated a heartbeat with a lost reply as a lost lock.
func TestRenewalWithALostReplyIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.renew = func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
			out, err := s.Renew(ctx, grants)
			if p.renews.Load()%4 != 0 { // three of four replies are lost
				return nil, errNet
			}
			return out, err
		}
		var seen recorder
		c := newClient(t, p, holdfast.WithObserver(seen.observe))
		lease := mustLock(t, c, "n")
		time.Sleep(10 * time.Minute)
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
		mustUnlock(t, lease)
		want(t, seen.last(holdfast.EventError).Err, holdfast.ErrUnavailable, errNet)
	})
}

func TestTimedOutRenewalIsRetriedAtOnceAndAFailedOneSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		start := newClock()
		var at []time.Duration
		p.renew = func(ctx context.Context, _ []store.Renewal) ([]store.Renewed, error) {
			at = append(at, time.Since(start.start).Round(time.Millisecond))
			if len(at) <= 2 {
				return nil, hang(ctx)
			}
			return nil, errNet
		}
		c := newClient(t, p, holdfast.WithTTL(12*time.Second))
		<-mustLock(t, c, "n").Done()
		const ms = time.Millisecond
		// The first attempt is after a third of the TTL. Two attempts time out after a sixth of
		// the TTL. Then there is an attempt every twentieth of the TTL until the deadline.
		wanted := []time.Duration{4000 * ms, 6000 * ms, 8000 * ms, 8600 * ms, 9200 * ms, 9800 * ms, 10400 * ms, 11000 * ms}
		if !slices.Equal(at, wanted) {
			t.Errorf("renewals were sent at\n%v, want\n%v", at, wanted)
		}
	})
}

func TestLeaseIsLostAtOnceWhenTheStoreSaysGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		start := newClock()
		lease := mustLock(t, a, "n")
		if err := b.Break(t.Context(), "n", lease.ID()); err != nil {
			t.Fatal(err)
		}
		<-lease.Done()
		start.wantWithin(t, 8*time.Second, 10*time.Second) // at its next renewal
		want(t, lease.Err(), holdfast.ErrLost)
		want(t, lease.Unlock(t.Context()), holdfast.ErrLost)
		want(t, lease.Unlock(t.Context()), holdfast.ErrNotHeld)
	})
}

func TestRenewalReplyAfterTheDeadlineDoesNotReviveTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.renew = func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
			out, err := s.Renew(context.WithoutCancel(ctx), grants)
			time.Sleep(25 * time.Second)
			return out, err
		}
		c := newClient(t, p)
		lease := mustLock(t, c, "n")
		<-lease.Done()
		time.Sleep(time.Minute)
		want(t, lease.Err(), holdfast.ErrLost)
		// The renewal reached the store, so without a clean-up the name would be closed.
		free(t, newClient(t, s), "n")
	})
}

// In stores with sessions a single grant does not expire, so the core removes it.
func TestLostLeaseIsRemovedFromTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			ttl := req.TTL
			req.TTL = 24 * time.Hour // like a grant that lives as long as its session
			answer, err := s.Acquire(ctx, req)
			answer.TTL = ttl
			return answer, err
		}
		c, other := newClient(t, p), newClient(t, s)
		lease := mustLock(t, c, "n", holdfast.NoRenew())
		<-lease.Done()
		if _, err := other.TryLock(t.Context(), "n"); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("given away at the deadline, want the holder to have its margin: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		free(t, other, "n")
	})
}

func TestNoRenewLeaseEndsAfterItsTTLUnlessRenewedByHand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		start := newClock()
		lease := mustLock(t, c, "n", holdfast.NoRenew(), holdfast.TTL(10*time.Second))
		time.Sleep(8 * time.Second)
		if err := lease.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-lease.Done()
		start.want(t, 17500*time.Millisecond)
		want(t, lease.Err(), holdfast.ErrLost)
		want(t, lease.Renew(t.Context()), holdfast.ErrLost)
		if n := p.renews.Load(); n != 1 {
			t.Errorf("%d renewals", n)
		}
	})
}

func TestRenewReportsTheReasonOfAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		lease := mustLock(t, c, "n", holdfast.NoRenew())
		deadline := lease.Deadline()
		p.set(func() { p.renew = failRenew })
		err := lease.Renew(t.Context())
		want(t, err, holdfast.ErrUnavailable, errNet)
		wantNone(t, err, holdfast.ErrLost)
		if !lease.Deadline().Equal(deadline) || lease.Err() != nil {
			t.Error("a failed renewal changed the lease")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		want(t, lease.Renew(ctx), context.Canceled)
		p.set(func() { p.renew = nil })
		mustUnlock(t, lease)
		want(t, lease.Renew(t.Context()), holdfast.ErrNotHeld)
	})
}

func TestMaxHoldEndsALeaseDespiteRenewal(t *testing.T) {
	for _, maxHold := range []time.Duration{5 * time.Second, 30 * time.Second, 95 * time.Second} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			c, other := newClient(t, s), newClient(t, s)
			start := newClock()
			lease := mustLock(t, c, "n", holdfast.MaxHold(maxHold))
			for lease.Err() == nil && time.Since(start.start) < maxHold-time.Second {
				time.Sleep(500 * time.Millisecond)
				if err := lease.Renew(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			<-lease.Done()
			start.want(t, maxHold)
			want(t, lease.Err(), holdfast.ErrLost)
			mustUnlock(t, mustLock(t, other, "n"))
			start.wantWithin(t, maxHold, maxHold+2500*time.Millisecond) // far earlier than after a TTL
		})
	}
}

// The test runs in real time, where timers are late. The loop polls, so that it sees the time
// between the deadline and the timer.
func TestErrReportsTheLossWithoutWaitingForATimer(t *testing.T) {
	c := newClient(t, memstore.New())
	short := []holdfast.CallOption{holdfast.NoRenew(), holdfast.TTL(10 * time.Millisecond)}
	for range 50 {
		lease := mustLock(t, c, "n", short...)
		for over := false; !over; {
			over = !time.Now().Before(lease.Deadline())
			if err := lease.Err(); over && !errors.Is(err, holdfast.ErrLost) {
				t.Fatalf("Err after the deadline: %v", err)
			}
		}
	}
}

func TestSlowObserverDoesNotDelayTheLossOfOtherLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.renew = failRenew
		c := newClient(t, p, holdfast.WithObserver(func(e holdfast.Event) {
			if e.Kind == holdfast.EventLost {
				time.Sleep(time.Hour)
			}
		}))
		start := newClock()
		leases := []*holdfast.Lease{mustLock(t, c, "a"), mustLock(t, c, "b"), mustLock(t, c, "c")}
		for _, lease := range leases {
			<-lease.Done()
		}
		start.want(t, 29*time.Second)
		time.Sleep(4 * time.Hour) // until the observer has returned
	})
}

func TestHeldLeaseCostsNoGoroutineAndLessThanAKilobyte(t *testing.T) {
	const n = 20_000
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("name:", i)
	}
	c := newClient(t, memstore.New())
	leases := make([]*holdfast.Lease, n)
	heap, goroutines := heapInUse(), runtime.NumGoroutine()
	for i, name := range names {
		leases[i] = mustLock(t, c, name)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 2 {
		t.Errorf("%d leases need %d goroutines", n, more)
	}
	if each := (heapInUse() - heap) / n; each > 1024 {
		t.Errorf("a lease needs %d bytes", each)
	}
	runtime.KeepAlive(leases)
}

// A lease that ends by itself leaves its holder a margin in which nobody else has the name. A holder
// that calls Unlock has stopped working and needs none.
func TestUnlockAfterMaxHoldFreesTheNameAtOnce(t *testing.T) {
	for _, reentrant := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := memstore.New()
			c, other := newClient(t, s), newClient(t, s)
			lease := mustLock(t, c, "n", holdfast.MaxHold(5*time.Second))
			got := later(t, other, "n")
			if reentrant {
				inner, err := c.Lock(lease.Context(t.Context()), "n", holdfast.Reentrant())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5100 * time.Millisecond)
				want(t, inner.Unlock(t.Context()), holdfast.ErrLost)
				time.Sleep(100 * time.Millisecond)
				if info, err := other.Inspect(t.Context(), "n"); err != nil || len(info.Holders) != 1 || info.Holders[0].ID != lease.ID() {
					t.Errorf("released while the outer lease may still be in use: %+v, %v", info, err)
				}
			} else {
				time.Sleep(5100 * time.Millisecond)
			}
			begin := time.Now()
			want(t, lease.Unlock(t.Context()), holdfast.ErrLost)
			next := <-got
			if took := time.Since(begin); took > 10*time.Millisecond {
				t.Errorf("the name was free %v after Unlock", took)
			}
			want(t, lease.Unlock(t.Context()), holdfast.ErrNotHeld)
			mustUnlock(t, next)
		})
	}
}

func TestMaxHoldMayBeShorterThanTheReplyTakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			answer, err := p.Store.Acquire(ctx, req)
			time.Sleep(50 * time.Millisecond)
			return answer, err
		}
		c := newClient(t, p)
		lease, err := c.Lock(t.Context(), "n", holdfast.MaxHold(10*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lease.Deadline()); left != 10*time.Millisecond {
			t.Errorf("the lease ends in %v", left)
		}
		mustUnlock(t, lease)
	})
}

func TestMaxHoldDoesNotIncludeTimeInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		first := mustLock(t, c, "n")
		got := later(t, c, "n", holdfast.MaxHold(10*time.Second))
		time.Sleep(9 * time.Second)
		mustUnlock(t, first)
		next := <-got
		start := newClock()
		<-next.Done()
		start.want(t, 10*time.Second)
	})
}

func TestFailingRenewalsAreRetriedWithBackoff(t *testing.T) {
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
		// It is 9 s now. The first renewals are due at 10 s, and all leases are lost at 38 s.
		time.Sleep(40 * time.Second)
		if per := grants.Load() / n; per > 26 { // 19 s with one attempt every 1.5 s is 13
			t.Errorf("%d attempts per lease in 19 s, want one in 1.5 s", per)
		}
	})
}

func TestLeasesReachingMaxHoldDoNotDisturbOtherRenewals(t *testing.T) {
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

func TestRenewalMayGrantAShorterTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		n := 0
		p.renew = func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
			if n++; n > 1 {
				return nil, errNet
			}
			for i := range g {
				g[i].TTL = 5 * time.Second // may differ from the requested TTL
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

func TestRenewRacingWithUnlockFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		l := mustLock(t, c, "n")
		ctx := &hookCtx{Context: t.Context(), f: func() { mustUnlock(t, l) }}
		if err := l.Renew(ctx); err == nil {
			t.Error("Renew returns nil although the lease was unlocked before the call was sent")
		}
	})
}

// If the timer fired repeatedly, fake time would not advance and the test would hang.
func TestHungRenewalDoesNotMakeTheTimerSpin(t *testing.T) {
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
		time.Sleep(20 * time.Second) // the next renewal would be due at 22 s
		close(stuck)
		time.Sleep(time.Minute)
		mustUnlock(t, lease)
	})
}

func TestFailedCleanUpOfALostGrantDoesNotDelayOthers(t *testing.T) {
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

func TestRenewReturnsTheCauseOfItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		l := mustLock(t, c, "n")
		p.set(func() { p.renew = hangRenew })
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		want(t, l.Renew(ctx), why)
	})
}

func TestCloseWaitsForARenewalThatACallerMakes(t *testing.T) {
	for name, call := range map[string]func(*holdfast.Lease) error{
		"renew":     func(l *holdfast.Lease) error { return l.Renew(context.Background()) },
		"downgrade": func(l *holdfast.Lease) error { return l.Downgrade(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newProxy(memstore.New())
				var inFlight atomic.Int64
				p.renew = func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
					inFlight.Add(1)
					defer inFlight.Add(-1)
					time.Sleep(time.Second)
					return p.Store.Renew(ctx, g)
				}
				c := mustNew(t, p)
				lease := mustLock(t, c, "n")
				var wg sync.WaitGroup
				wg.Go(func() { want(t, call(lease), holdfast.ErrClosed) })
				synctest.Wait()
				c.Close()
				if n := inFlight.Load(); n != 0 {
					t.Errorf("%d calls to the store in flight after Close", n)
				}
				wg.Wait()
			})
		})
	}
}

func TestANoRenewLeaseIsNotRenewedEvenIfItsGrantIsShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			req.TTL /= 3
			return p.Store.Acquire(ctx, req)
		}
		c := newClient(t, p)
		lease := mustLock(t, c, "n", holdfast.NoRenew())
		<-lease.Done()
		want(t, lease.Err(), holdfast.ErrLost)
		if n := p.renews.Load(); n != 0 {
			t.Errorf("%d renewals", n)
		}
	})
}
