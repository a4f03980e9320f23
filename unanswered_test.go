package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// hungStore returns a client whose store stops answering once stop is called.
func hungStore(t *testing.T) (c *holdfast.Client, stop func()) {
	p := newProxy(memstore.New())
	c = newClient(t, p)
	return c, func() {
		p.set(func() {
			p.acquire = hangAcquire
			p.renew = hangRenew
			p.release = hangRelease
			p.leave = func(ctx context.Context, _ string, _ store.ID) error { return hang(ctx) }
		})
	}
}

func TestCallsToAHungStoreAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		most time.Duration
		call func(*holdfast.Client, *holdfast.Lease) error
	}{
		"lock": {5 * time.Second, func(c *holdfast.Client, _ *holdfast.Lease) error {
			_, err := c.Lock(context.Background(), "other")
			return err
		}},
		"try lock": {3 * time.Second, func(c *holdfast.Client, _ *holdfast.Lease) error {
			_, err := c.TryLock(context.Background(), "other")
			return err
		}},
		"renew": {3 * time.Second, func(_ *holdfast.Client, l *holdfast.Lease) error {
			return l.Renew(context.Background())
		}},
		"unlock": {5 * time.Second, func(_ *holdfast.Client, l *holdfast.Lease) error {
			return l.Unlock(context.Background())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c, stop := hungStore(t)
				lease := mustLock(t, c, "n")
				stop()
				start := newClock()
				err := test.call(c, lease)
				start.wantWithin(t, test.most/2, test.most)
				want(t, err, holdfast.ErrUnavailable)
				wantNone(t, err, context.DeadlineExceeded, context.Canceled)
			})
		})
	}
}

func TestLockRetriesAHungStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
			if p.acquires.Load() == 1 {
				return store.Answer{}, hang(ctx)
			}
			return s.Acquire(ctx, req)
		}
		start := newClock()
		mustUnlock(t, mustLock(t, newClient(t, p), "n"))
		start.wantWithin(t, 3*time.Second, 4*time.Second)
	})
}

func TestACallWithoutAReplyDoesNotHideWhyEarlierOnesFailed(t *testing.T) {
	for name, failure := range map[string]error{
		"failed":               errNet,
		"a limit of the store": fmt.Errorf("%s: %w", errNet, context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newProxy(memstore.New())
				p.acquire = func(ctx context.Context, req store.Request) (store.Answer, error) {
					if p.acquires.Load() <= 2 {
						return store.Answer{}, failure
					}
					return hangAcquire(ctx, req)
				}
				_, err := newClient(t, p).Lock(t.Context(), "n")
				want(t, err, holdfast.ErrUnavailable)
				if text := err.Error(); !strings.Contains(text, "no reply in time") || strings.Count(text, errNet.Error()) != 1 {
					t.Errorf("%v, want both reasons", err)
				}
			})
		})
	}
}

func TestStoreTimeoutDoesNotMatchTheCallersDeadlineError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		late := fmt.Errorf("read tcp: %w", context.DeadlineExceeded)
		p := newProxy(memstore.New())
		p.caps = func(caps *store.Capabilities) { caps.Instant, caps.Timeout = false, time.Second }
		c := newClient(t, p)
		lease := mustLock(t, c, "n")
		p.set(func() {
			p.acquire = func(context.Context, store.Request) (store.Answer, error) { return store.Answer{}, late }
			p.renew = func(context.Context, []store.Renewal) ([]store.Renewed, error) { return nil, late }
			p.release = func(context.Context, string, store.ID, store.Keep) error { return late }
		})
		_, lockErr := c.Lock(t.Context(), "other")
		for call, err := range map[string]error{
			"lock":   lockErr,
			"renew":  lease.Renew(t.Context()),
			"unlock": lease.Unlock(t.Context()),
		} {
			want(t, err, holdfast.ErrUnavailable)
			wantNone(t, err, context.DeadlineExceeded)
			if !strings.Contains(err.Error(), "read tcp") {
				t.Errorf("%s: the error hides its cause: %v", call, err)
			}
		}
	})
}

func init() {
	store.Register("unreachable", func(context.Context, *store.URL) (store.Store, error) {
		return nil, errNet
	})
	store.Register("hung", func(ctx context.Context, _ *store.URL) (store.Store, error) {
		return nil, hang(ctx)
	})
}

func TestOpenReturnsErrUnavailableForAnUnreachableStore(t *testing.T) {
	_, err := holdfast.Open(t.Context(), "unreachable:")
	want(t, err, holdfast.ErrUnavailable, errNet)
}

func TestOpenOfAHungStoreIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := newClock()
		_, err := holdfast.Open(context.Background(), "hung:")
		start.want(t, 10*time.Second)
		want(t, err, holdfast.ErrUnavailable)
		wantNone(t, err, context.DeadlineExceeded)
	})
}

func TestOpenReturnsTheCauseOfItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		impatient := errors.New("impatient")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer cancel()
		_, err := holdfast.Open(ctx, "hung:")
		want(t, err, holdfast.ErrUnavailable, impatient)
	})
}

func TestUnlockOfAHungStoreIsBoundedWhenAnotherGoroutineWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, stop := hungStore(t)
		lease := mustLock(t, c, "n")
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { c.Lock(ctx, "n") })
		time.Sleep(time.Second)
		stop()
		start := newClock()
		want(t, lease.Unlock(t.Context()), holdfast.ErrUnavailable)
		start.wantWithin(t, 2*time.Second, 5*time.Second)
		cancel()
		wg.Wait()
	})
}

func TestTryLockIsBoundedWhileTheNameIsBeingReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, stop := hungStore(t)
		lease := mustLock(t, c, "n")
		stop()
		var wg sync.WaitGroup
		wg.Go(func() { lease.Unlock(t.Context()) })
		synctest.Wait()
		start := newClock()
		_, err := c.TryLock(t.Context(), "n")
		want(t, err, holdfast.ErrUnavailable)
		wantNone(t, err, context.DeadlineExceeded)
		start.wantWithin(t, time.Second, 3*time.Second)
		wg.Wait()
	})
}

func TestManyLocksOfOneNameInAnOutageDoNotWaitForEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, stop := hungStore(t)
		stop()
		start := newClock()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := c.Lock(t.Context(), "n")
				want(t, err, holdfast.ErrUnavailable)
				start.wantWithin(t, 4*time.Second, 7*time.Second)
			})
		}
		wg.Wait()
	})
}
