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
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
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

// runner returns a runner that holds a lock with a minimum hold, under which no job has run yet.
func (b *brokenStore) runner(t *testing.T, report *reporter) *runner {
	t.Helper()
	c := suites.Client(t, b)
	lease, err := c.Lock(t.Context(), "a", holdfast.MinHold(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{jobOptions: &jobOptions{}, report: report, client: &connection{c, &ttlStore{Store: b}}, lease: lease}
	r.name, r.signals = "a", make(chan os.Signal, 1)
	return r
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
			lease, err := suites.Client(t, b).Lock(t.Context(), "a")
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

func TestMinHoldConcernsOnlyALockUnderWhichAJobHasRun(t *testing.T) {
	refuse := func(context.Context) error { return errors.New("connection refused") }
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	delay := func(context.Context) error { time.Sleep(hurryTime / 10); return nil }
	signal := func(r *runner) { r.leave(&signalled{15}) }
	failed := func(r *runner) {
		r.used = true
		(&holding{runner: r}).jobEvent(job.Event{Kind: job.Failed, Err: errors.New("not found")})
	}
	for _, test := range []struct {
		what   string
		first  func(ctx context.Context) error // precedes the first release, which it prevents by an error
		leave  func(r *runner)
		again  bool // there is a second signal
		closed bool
	}{
		{"a signal, and the first release hangs", hang, signal, false, false},
		{"a signal, and the first release is refused", refuse, signal, false, false},
		{"two signals", delay, signal, true, false},
		{"the job could not be executed, and a signal", delay, failed, true, false},
		{"--max-hold has ended a job, and the first release is refused", refuse, func(r *runner) { r.used, r.hurry = true, true }, false, true},
	} {
		t.Run(test.what, func(t *testing.T) {
			report := newReporter("a") // it never ends
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				b := &brokenStore{Store: memstore.New()}
				defer time.Sleep(time.Minute) // until what cleanUp left running has ended
				b.release = func(ctx context.Context, real func() error) error {
					if calls++; calls == 1 {
						if err := test.first(ctx); err != nil {
							return err
						}
					}
					return real()
				}
				r := b.runner(t, report)
				test.leave(r)
				if test.again {
					r.signals <- syscall.SIGTERM
				}
				r.cleanUp()
				page, err := b.List(t.Context(), store.Query{})
				closed := len(page.Locks) == 1 && page.Locks[0].Holders[0].State == store.Cooling
				if err != nil || closed != test.closed || !closed && len(page.Locks) > 0 {
					t.Errorf("afterwards: %+v, %v", page.Locks, err)
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
