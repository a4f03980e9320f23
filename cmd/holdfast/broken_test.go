package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/job"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A brokenStore is a store in memory with faults that a test cannot cause in a server at the right moment.
type brokenStore struct {
	*memstore.Store
	release  func(ctx context.Context, real func() error) error // replaces Release
	shortest time.Duration                                      // of the TTLs that it grants
}

func (b *brokenStore) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	req.TTL = max(req.TTL, b.shortest)
	return b.Store.Acquire(ctx, req)
}

func (b *brokenStore) Release(ctx context.Context, name string, id store.ID, keep store.Keep) error {
	return b.release(ctx, func() error { return b.Store.Release(ctx, name, id, keep) })
}

func (b *brokenStore) Close() error { return nil } // the test still reads it

func (b *brokenStore) client(t *testing.T) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Only a lock that was held until its release has protected all of the work.
func TestReleaseForgivesALostReplyIfTheLockWasHeldUntilThen(t *testing.T) {
	for _, test := range []struct {
		what   string
		gone   bool  // before the release
		effect bool  // of the call whose reply is lost
		race   bool  // it goes between the look and the first call
		want   error // at last
	}{
		{"released by a call whose reply was lost", false, true, false, nil},
		{"released by the second call", false, false, false, nil},
		{"gone before the first call", true, false, false, holdfast.ErrNotHeld},
		{"gone between the look and the first call", false, false, true, holdfast.ErrNotHeld},
	} {
		calls := 0
		b := &brokenStore{Store: memstore.New()}
		b.release = func(_ context.Context, real func() error) error {
			if test.race {
				real()
				return real()
			}
			if calls++; calls > 1 || test.effect {
				if err := real(); calls > 1 {
					return err
				}
			}
			return errors.New("connection refused")
		}
		id := store.NewID()
		if !test.gone {
			lease, err := b.client(t).Lock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			id = lease.ID()
		}
		do := release("a", id)
		err := do(t.Context(), b)
		if err != nil && !errors.Is(err, holdfast.ErrNotHeld) {
			err = do(t.Context(), b)
		}
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.what, err, test.want)
		}
	}
}

func TestALockUnderWhichNoJobHasRunIsNotClosedForMinHold(t *testing.T) {
	for what, failure := range map[string]func(ctx context.Context) error{
		"hangs":      func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"is refused": func(context.Context) error { return errors.New("connection refused") },
	} {
		t.Run("the first release "+what, func(t *testing.T) {
			t.Parallel()
			calls := 0
			b := &brokenStore{Store: memstore.New()}
			b.release = func(ctx context.Context, real func() error) error {
				if calls++; calls == 1 {
					return failure(ctx)
				}
				return real()
			}
			c := b.client(t)
			lease, err := c.Lock(t.Context(), "a", holdfast.MinHold(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			r := &runner{jobOptions: &jobOptions{}, report: newReporter("a"), client: &connection{c, &ttlStore{Store: b}}, lease: lease}
			r.name = "a"
			r.leave(&signalled{15})
			r.cleanUp()
			if page, err := b.List(t.Context(), store.Query{}); err != nil || len(page.Locks) > 0 {
				t.Errorf("left behind: %+v, %v", page.Locks, err)
			}
		})
	}
}

// As the run leaves it when --max-hold has ended its job.
func TestALockUnderWhichAJobHasRunIsClosedForMinHoldAlsoIfTheFirstReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := &brokenStore{Store: memstore.New()}
		b.release = func(_ context.Context, real func() error) error {
			if calls++; calls == 1 {
				return errors.New("connection reset")
			}
			return real()
		}
		c := b.client(t)
		lease, err := c.Lock(t.Context(), "a", holdfast.MinHold(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{jobOptions: &jobOptions{}, client: &connection{c, &ttlStore{Store: b}}, lease: lease, used: true, hurry: true}
		r.name = "a"
		r.cleanUp()
		page, err := b.List(t.Context(), store.Query{})
		if err != nil || len(page.Locks) != 1 || page.Locks[0].Holders[0].State != store.Cooling {
			t.Errorf("afterwards: %+v, %v", page.Locks, err)
		}
	})
}

func TestASecondSignalDoesNotPreventTheReleaseOfAnUnusedLock(t *testing.T) {
	for what, leave := range map[string]func(r *runner){
		"a signal": func(r *runner) { r.leave(&signalled{15}) },
		"the job could not be executed": func(r *runner) {
			r.used = true
			(&holding{runner: r}).jobEvent(job.Event{Kind: job.Failed, Err: errors.New("not found")})
		},
	} {
		t.Run(what, func(t *testing.T) {
			report := newReporter("a") // it never ends
			synctest.Test(t, func(t *testing.T) {
				b := &brokenStore{Store: memstore.New()}
				defer time.Sleep(time.Minute) // until what cleanUp left running has ended
				b.release = func(_ context.Context, real func() error) error {
					time.Sleep(hurryTime / 10)
					return real()
				}
				c := b.client(t)
				lease, err := c.Lock(t.Context(), "a", holdfast.MinHold(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				r := &runner{jobOptions: &jobOptions{}, report: report, client: &connection{c, &ttlStore{Store: b}}, lease: lease}
				r.name, r.signals = "a", make(chan os.Signal, 1)
				leave(r)
				r.signals <- syscall.SIGTERM
				r.cleanUp()
				if page, err := b.List(t.Context(), store.Query{}); err != nil || len(page.Locks) > 0 {
					t.Errorf("left behind: %+v, %v", page.Locks, err)
				}
			})
		})
	}
}

func TestMaxHoldIsNotLongerIfTheStoreGrantsALongerTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &ttlStore{Store: &brokenStore{Store: memstore.New(), shortest: 8 * time.Second}}
		c, err := holdfast.New(st)
		if err != nil {
			t.Fatal(err)
		}
		lease, err := c.Lock(t.Context(), "a", holdfast.TTL(2*time.Second), holdfast.NoRenew())
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{jobOptions: &jobOptions{maxHold: 3 * time.Second}, client: &connection{c, st}, lease: lease}
		r.ttl = 2 * time.Second
		r.useGranted()
		if d := time.Until(r.deadline()); d != r.maxHold {
			t.Errorf("the job must end in %v, want %v", d, r.maxHold)
		}
	})
}
