package holdfast_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestCloseIsBoundedWhenTheStoreHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := mustNew(t, p)
		for i := range 100 { // more locks than are released concurrently
			mustLock(t, c, fmt.Sprint(i))
		}
		p.set(func() { p.release = hangRelease })
		start := newClock()
		err := c.Close()
		want(t, err, holdfast.ErrUnavailable)
		if !strings.Contains(err.Error(), "100 of 100 locks") {
			t.Errorf("error reads %q", err)
		}
		start.want(t, 3*time.Second)
	})
}

// A slowClose is a store whose servers do not answer, and whose Close tries to reach them.
type slowClose struct{ *proxy }

func (s slowClose) Close() error {
	time.Sleep(2 * time.Second)
	return s.proxy.Close()
}

func init() {
	store.Register("slowclose", func(context.Context, *store.URL) (store.Store, error) {
		p := newProxy(memstore.New())
		p.acquire = hangAcquire
		p.leave = func(ctx context.Context, _ string, _ store.ID) error { return hang(ctx) }
		return slowClose{p}, nil
	})
}

func TestCloseIsBoundedWithACallInFlightAndASlowStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := holdfast.Open(t.Context(), "slowclose:")
		if err != nil {
			t.Fatal(err)
		}
		go c.Lock(context.Background(), "n")
		synctest.Wait()
		start := newClock()
		c.Close()
		start.wantWithin(t, 2*time.Second, 6*time.Second)
	})
}

func TestCloseWaitsForCallsInFlightAndReleasesTheirGrants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			answer, err := s.Acquire(ctx, req)
			time.Sleep(2 * time.Second) // the reply is in flight
			return answer, err
		}
		c, other := mustNew(t, p), newClient(t, s)
		got := make(chan *holdfast.Lease)
		go func() {
			lease, _ := c.Lock(context.Background(), "n")
			got <- lease
		}()
		synctest.Wait()
		start := newClock()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		start.want(t, 2*time.Second)
		free(t, other, "n")
		if lease := <-got; lease != nil {
			want(t, lease.Err(), holdfast.ErrClosed)
		}
	})
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		a, b := mustNew(t, newProxy(s)), newClient(t, s)
		lease, other := mustLock(t, a, "n"), mustLock(t, b, "m")
		work := lease.Context(t.Context())
		waiting := make(chan error)
		for range 2 { // one is queued at the store, one behind it in the local queue
			go func() {
				_, err := a.Lock(context.Background(), "m")
				waiting <- err
			}()
		}
		synctest.Wait()
		start := newClock()
		if err := a.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		start.want(t, 0) // no call was in flight
		for range 2 {
			want(t, <-waiting, holdfast.ErrClosed)
		}
		want(t, context.Cause(work), holdfast.ErrClosed)
		want(t, lease.Err(), holdfast.ErrClosed)
		want(t, lease.Unlock(t.Context()), holdfast.ErrClosed)
		_, err := a.Lock(t.Context(), "x")
		want(t, err, holdfast.ErrClosed)
		if err := a.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		free(t, b, "n")
		info, err := b.Inspect(t.Context(), "m")
		if err != nil || len(info.Waiters) != 0 {
			t.Errorf("queue of m after Close: %+v, %v", info.Waiters, err)
		}
		mustUnlock(t, other)
	})
}

func TestCloseReleasesAGrantWhoseReplyWasLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, r store.Request) (store.Answer, error) {
			s.Acquire(ctx, r)
			return store.Answer{}, hang(ctx)
		}
		c := newClient(t, p)
		laterErr(context.Background(), c)
		c.Close()
		synctest.Wait()
		other := newClient(t, s)
		if _, err := other.TryLock(t.Context(), "n"); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseReleasesTheRestWhenOneReleaseFails(t *testing.T) {
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

func TestDoFailsIfTheClientIsClosedWhileTheFunctionRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		c, other := newClient(t, s), newClient(t, s)
		err := c.Do(t.Context(), "n", func(ctx context.Context) error {
			go c.Close()
			time.Sleep(time.Second)
			mustUnlock(t, mustLock(t, other, "n")) // another client has held it meanwhile
			return nil
		})
		if err == nil {
			t.Error("Do returns nil although the lock was released while fn ran")
		}
	})
}

func TestCloseCalledByAnObserverReleasesAllLocks(t *testing.T) {
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

func TestCloseHonoursMinHold(t *testing.T) {
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

func TestDoReturnsErrLostIfTheLeaseWasLostBeforeClose(t *testing.T) {
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

func TestCloseDuringLockAllIgnoresMinHold(t *testing.T) {
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

// The time that Close has for the store must not be used up by the observer.
func TestASlowObserverDoesNotKeepCloseFromReleasingLocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		var released atomic.Int64
		c, other := mustNew(t, newProxy(s), holdfast.WithObserver(func(e holdfast.Event) {
			if e.Kind == holdfast.EventReleased {
				released.Add(1)
				time.Sleep(time.Second)
			}
		})), newClient(t, s)
		const n = 10
		for i := range n {
			mustLock(t, c, fmt.Sprint(i))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for i := range n {
			free(t, other, fmt.Sprint(i))
		}
		if released.Load() != n {
			t.Errorf("%d of %d leases were reported as released", released.Load(), n)
		}
	})
}

func TestCloseReleasesManyLeasesAsLongAsTheStoreAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newProxy(memstore.New())
		c := newClient(t, p)
		const n = 7000
		for i := range n {
			mustLock(t, c, fmt.Sprint(i))
		}
		p.set(func() {
			p.release = func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				time.Sleep(20 * time.Millisecond)
				return p.Store.Release(ctx, name, id, keep)
			}
		})
		begin := newClock()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		begin.wantWithin(t, 3*time.Second, 6*time.Second) // longer than a single call may take
		page, err := p.List(t.Context(), store.Query{Limit: n})
		if err != nil || len(page.Locks) > 0 {
			t.Errorf("%d locks are left, %v", len(page.Locks), err)
		}
	})
}
