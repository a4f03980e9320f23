package holdfast_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// lockAll takes "x" and "y" together.
func (w *world) lockAll(opts ...holdfast.CallOption) (*holdfast.LeaseSet, error) {
	return w.c.LockAll(context.Background(), []string{"y", "x", "y"}, opts...)
}

func TestLockAll(t *testing.T) {
	scenarios{
		"it takes all names": func(w *world) {
			set, err := w.lockAll()
			must(w, err)
			equal(w, "leases for two names", len(set.Leases()), 2)
			for _, name := range []string{"x", "y"} {
				want(w, errOf(w.other.TryLock(w.Context(), name)), holdfast.ErrHeld)
				if set.Lease(name).Token() <= 0 {
					w.Errorf("no token for %s", name)
				}
			}
			if set.Lease("z") != nil {
				w.Error("a lease that was not asked for")
			}
			ctx := set.Context(w.Context())
			want(w, errOf(w.c.Lock(ctx, "x")), holdfast.ErrWouldDeadlock)
			must(w, set.Renew(w.Context()))
			must(w, set.Unlock(w.Context()))
			want(w, ctx.Err(), context.Canceled)
			want(w, set.Err(), holdfast.ErrNotHeld)
			w.free("x", "y")
		},
		"it holds nothing if one name is held": func(w *world) {
			mustLock(w, w.other, "y")
			want(w, errOf(w.lockAll(holdfast.MinHold(time.Hour), holdfast.Wait(time.Second))), holdfast.ErrHeld)
			w.took(time.Second)
			w.free("x")
		},
		"concurrent calls do not deadlock": func(w *world) {
			orders := [][]string{{"x", "y", "z"}, {"z", "y", "x"}, {"y", "x"}, {"z", "x"}}
			together(40, func(i int) {
				c := []*holdfast.Client{w.c, w.other}[i%2]
				for range 20 {
					set, err := c.LockAll(context.Background(), orders[i%len(orders)])
					must(w, err)
					time.Sleep(time.Millisecond)
					must(w, set.Unlock(context.Background()))
				}
			})
		},
		"Done is closed before the next holder, and after the contexts": func(w *world) {
			for range 100 {
				set, err := w.lockAll()
				must(w, err)
				var contexts []context.Context // many, so that ending them takes long
				for range 50 {
					parent, cancel := context.WithCancel(w.Context())
					defer cancel()
					contexts = append(contexts, set.Context(parent))
				}
				done, early := set.Done(), make(chan bool, 1)
				go func() {
					<-done
					early <- slices.ContainsFunc(contexts, func(ctx context.Context) bool { return ctx.Err() == nil })
				}()
				next := make(chan bool, 2)
				go func() {
					for _, name := range []string{"x", "y"} {
						lease, err := w.other.Lock(context.Background(), name)
						must(w, err)
						next <- isDone(done)
						must(w, lease.Unlock(context.Background()))
					}
				}()
				synctest.Wait()
				must(w, set.Unlock(w.Context()))
				if x, y := <-next, <-next; !x || !y {
					w.Fatal("the next holder has the name, and Done is open")
				}
				if <-early {
					w.Fatal("Done is closed, and a context has not ended")
				}
				synctest.Wait()
			}
		},
		"the loss of one name ends the whole set": func(w *world) {
			set, err := w.lockAll()
			must(w, err)
			ctx, done := set.Context(w.Context()), set.Done()
			if set.Err() != nil || isDone(done) {
				w.Error("the set ended before its time")
			}
			must(w, w.other.Break(w.Context(), "y", set.Lease("y").ID()))
			<-done
			synctest.Wait()
			want(w, context.Cause(ctx), holdfast.ErrLost)
			want(w, set.Err(), holdfast.ErrLost)
			want(w, set.Unlock(w.Context()), holdfast.ErrLost)
			w.free("x")
		},
		"it fails if it loses a name while it waits for another": func(w *world) {
			lease := mustLock(w, w.other, "y")
			time.AfterFunc(time.Minute, func() { lease.Unlock(context.Background()) })
			want(w, errOf(w.lockAll(holdfast.NoRenew())), holdfast.ErrLost)
			w.free("x", "y")
		},
		"Wait bounds it as a whole": func(w *world) {
			for name, after := range map[string]time.Duration{"x": 900 * time.Millisecond, "y": 1800 * time.Millisecond} {
				lease := mustLock(w, w.other, name)
				time.AfterFunc(after, func() { lease.Unlock(context.Background()) })
			}
			want(w, errOf(w.lockAll(holdfast.Wait(time.Second))), context.DeadlineExceeded)
			w.took(time.Second)
		},
		"at a store that hangs all names are unlocked in the time of one": func(w *world) {
			set, err := w.lockAll()
			must(w, err)
			w.p.hang()
			want(w, set.Unlock(w.Context()), holdfast.ErrUnavailable)
			w.within(0, 6*time.Second)
		},
		"a reentrant call that fails keeps the MinHold of the outer lease": func(w *world) {
			mustLock(w, w.other, "z")
			outer := w.lock(w.c, holdfast.MinHold(time.Minute))
			_, err := w.c.LockAll(outer.Context(w.Context()), []string{"n", "z"}, holdfast.Reentrant(), holdfast.Wait(0))
			want(w, err, holdfast.ErrHeld)
			mustUnlock(w, outer)
			want(w, w.try(w.other), holdfast.ErrHeld)
		},
	}.run(t)
}
