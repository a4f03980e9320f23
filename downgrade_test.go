package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestDowngradeAdmitsReadersButNoWriter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n")
		writer, reader, local := make(chan *holdfast.Lease), make(chan *holdfast.Lease), make(chan *holdfast.Lease)
		lock := func(c *holdfast.Client, call func(context.Context, string, ...holdfast.CallOption) (*holdfast.Lease, error), to chan *holdfast.Lease) {
			go func() {
				lease, err := call(context.Background(), "n")
				if err != nil {
					t.Error(err)
				}
				to <- lease
			}()
			synctest.Wait()
		}
		lock(b, b.RLock, reader)
		lock(a, a.RLock, local)
		if err := lease.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		if lease.Mode() != store.Shared {
			t.Errorf("mode %v", lease.Mode())
		}
		r1, r2 := <-reader, <-local
		lock(b, b.Lock, writer)
		time.Sleep(10 * time.Minute) // renewed as a reader
		if err := errors.Join(lease.Err(), r1.Err(), r2.Err()); err != nil {
			t.Error(err)
		}
		if err := lease.Downgrade(t.Context()); err != nil {
			t.Errorf("second Downgrade: %v", err)
		}
		mustUnlock(t, lease)
		mustUnlock(t, r1)
		select {
		case <-writer:
			t.Fatal("a writer beside a reader")
		default:
		}
		mustUnlock(t, r2)
		mustUnlock(t, <-writer)
	})
}

func TestDowngradeWithALostReplyCountsAsShared(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, other := newClient(t, p), newClient(t, s)
		lease := mustLock(t, c, "n")
		p.set(func() { p.renew = failRenew })
		want(t, lease.Downgrade(t.Context()), holdfast.ErrUnavailable)
		if lease.Mode() != store.Shared {
			t.Errorf("mode %v, though the store may have let readers in", lease.Mode())
		}
		p.set(func() { p.renew = nil })
		time.Sleep(15 * time.Second) // the next renewal tells the store
		reader, err := other.TryRLock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, reader)
		mustUnlock(t, lease)
		free(t, other, "n")
	})
}

// A store that is full extends grants, but cannot change their mode.
func TestDowngradeAtAFullStoreKeepsTheLeaseAndIsMadeLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		p := newProxy(s)
		c, other := newClient(t, p), newClient(t, s)
		lease := mustLock(t, c, "n")
		p.set(func() {
			p.renew = func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				grants[0].Mode = store.Exclusive
				out, err := s.Renew(ctx, grants)
				out[0].Err = errNet
				return out, err
			}
		})
		want(t, lease.Downgrade(t.Context()), holdfast.ErrUnavailable, errNet)
		if err := lease.Renew(t.Context()); err != nil {
			t.Errorf("Renew: %v, though the lease was extended", err)
		}
		time.Sleep(10 * time.Minute)
		if lease.Err() != nil || lease.Mode() != store.Shared {
			t.Errorf("mode %v, error %v", lease.Mode(), lease.Err())
		}
		p.set(func() { p.renew = nil })
		time.Sleep(15 * time.Second) // the next renewal tells the store
		reader, err := other.TryRLock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, reader)
		mustUnlock(t, lease)
	})
}

func TestDowngradeRacingWithUnlockDoesNotAffectTheNextHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		first := mustLock(t, a, "n")
		got := later(t, a, "n")
		ctx := &hookCtx{Context: t.Context(), f: func() { mustUnlock(t, first) }}
		want(t, first.Downgrade(ctx), holdfast.ErrNotHeld)
		next := <-got
		r, err := b.TryRLock(t.Context(), "n")
		if err == nil {
			t.Errorf("a reader (%v, alive %v) beside the exclusive lease (alive %v)", r.Mode(), r.Err() == nil, next.Err() == nil)
		}
	})
}

func TestDowngradeDuringAHandoverDoesNotStrandWaiters(t *testing.T) {
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
		// The unlock starts after Downgrade has checked that the lease is held.
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
