package holdfast_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestEveryRetriesAtAFixedInterval(t *testing.T) {
	s := holdfast.Every(time.Second)
	for attempt := 1; attempt < 100; attempt++ {
		if wait, again := s.Next(attempt, errNet); wait != time.Second || !again {
			t.Fatalf("attempt %d: %v, %t", attempt, wait, again)
		}
	}
}

func TestBackoffDoublesUpToItsMaximumWithJitter(t *testing.T) {
	s := holdfast.Backoff(100*time.Millisecond, time.Second)
	for attempt, full := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond,
		5: time.Second, 63: time.Second, 64: time.Second, 1 << 30: time.Second,
	} {
		different := map[time.Duration]bool{}
		for range 100 {
			wait, again := s.Next(attempt, errNet)
			if wait < full/2 || wait > full || !again {
				t.Fatalf("attempt %d: %v, want %v to %v", attempt, wait, full/2, full)
			}
			different[wait] = true
		}
		if len(different) < 2 {
			t.Errorf("attempt %d: no jitter", attempt)
		}
	}
}

func TestMaxAttemptsStopsAfterThatManyAttempts(t *testing.T) {
	s := holdfast.MaxAttempts(3, holdfast.Every(time.Second))
	for attempt, more := range map[int]bool{1: true, 2: true, 3: false, 4: false} {
		if _, again := s.Next(attempt, errNet); again != more {
			t.Errorf("attempt %d: again %t", attempt, again)
		}
	}
}

func TestMaxAttemptsCountsRefusalsAndFailuresTogether(t *testing.T) {
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

func TestPanickingStrategyDoesNotBlockTheName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c := newClient(t, p)
		p.acquire = failAcquire
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

func TestAStrategyKeepsItsPaceInAnOutageWhileOthersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		p.acquire = failAcquire
		c := newClient(t, p)
		start := newClock()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := c.Lock(t.Context(), "n", holdfast.Retry(holdfast.MaxAttempts(4, holdfast.Every(10*time.Second))))
			want(t, err, holdfast.ErrUnavailable)
			start.wantWithin(t, 30*time.Second, 31*time.Second)
		})
		synctest.Wait()
		wg.Go(func() { c.Lock(t.Context(), "n", holdfast.Wait(time.Hour)) })
		wg.Wait()
	})
}
