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

// A slowClose is a store whose servers do not answer, and whose Close tries to reach them.
type slowClose struct{ *proxy }

func (s slowClose) Close() error {
	time.Sleep(2 * time.Second)
	return s.proxy.Close()
}

func init() {
	store.Register("slowclose", func(context.Context, *store.URL) (store.Store, error) {
		p := newProxy(memstore.New())
		p.hang()
		return slowClose{p}, nil
	})
}

func TestClose(t *testing.T) {
	scenarios{
		"it is bounded when the store hangs": func(w *world) {
			for i := range 100 { // more locks than are released concurrently
				mustLock(w, w.c, fmt.Sprint(i))
			}
			w.p.hang()
			err := w.c.Close()
			want(w, err, holdfast.ErrUnavailable)
			if !strings.Contains(err.Error(), "100 of 100 locks") {
				w.Errorf("error reads %q", err)
			}
			w.took(3 * time.Second)
		},
		"it is bounded with a call in flight and a slow store": func(w *world) {
			c, err := holdfast.Open(w.Context(), "slowclose:")
			must(w, err)
			w.laterErr(context.Background(), c)
			c.Close()
			w.within(2*time.Second, 6*time.Second)
		},
		"it waits for calls in flight and releases their grants": func(w *world) {
			w.p.slow(0, 2*time.Second)
			over := w.laterErr(context.Background(), w.c)
			must(w, w.c.Close())
			w.took(2 * time.Second)
			w.free("n")
			want(w, <-over, holdfast.ErrClosed)
		},
		"it waits for a renewal that a caller makes": func(w *world) {
			var inFlight atomic.Int64
			w.p.renew.set(func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
				inFlight.Add(1)
				defer inFlight.Add(-1)
				time.Sleep(time.Second)
				return w.s.Renew(ctx, g)
			})
			for _, call := range []func(*holdfast.Lease, context.Context) error{(*holdfast.Lease).Renew, (*holdfast.Lease).Downgrade} {
				c := w.client()
				lease, over := w.lock(c), make(chan error, 1)
				go func() { over <- call(lease, context.Background()) }()
				synctest.Wait()
				c.Close()
				equal(w, "calls in flight after Close", inFlight.Load(), 0)
				want(w, <-over, holdfast.ErrClosed)
			}
		},
		"it leaves nothing behind": func(w *world) {
			lease, other := mustLock(w, w.c, "m"), w.lock(w.other)
			work := lease.Context(w.Context())
			// One call is queued at the store, one behind it in the local queue.
			over := []<-chan error{w.laterErr(context.Background(), w.c), w.laterErr(context.Background(), w.c)}
			must(w, w.c.Close())
			w.took(0) // no call was in flight
			want(w, <-over[0], holdfast.ErrClosed)
			want(w, <-over[1], holdfast.ErrClosed)
			want(w, context.Cause(work), holdfast.ErrClosed)
			want(w, lease.Err(), holdfast.ErrClosed)
			want(w, lease.Unlock(w.Context()), holdfast.ErrClosed)
			want(w, errOf(w.c.Lock(w.Context(), "x")), holdfast.ErrClosed)
			must(w, w.c.Close())
			w.free("m")
			mustUnlock(w, other)
			w.free("n")
			if page, err := w.s.List(w.Context(), store.Query{}); err != nil || len(page.Locks) > 0 {
				w.Errorf("left in the store: %+v, %v", page.Locks, err)
			}
		},
		"it releases a grant whose reply was lost": func(w *world) {
			w.p.acquire.set(func(ctx context.Context, r store.Request) (store.Answer, error) {
				w.s.Acquire(ctx, r)
				return store.Answer{}, hang(ctx)
			})
			w.laterErr(context.Background(), w.c)
			w.c.Close()
			w.free("n")
		},
		"it releases the rest when one release fails": func(w *world) {
			w.p.release.set(func(ctx context.Context, name string, id store.ID, k store.Keep) error {
				if name == "bad" { // one node of a cluster is down
					return errNet
				}
				return w.s.Release(ctx, name, id, k)
			})
			bad, _ := mustLock(w, w.c, "bad"), w.lock(w.c)
			bad.Unlock(w.Context())
			w.c.Close()
			w.free("n")
		},
		"an observer may call it": func(w *world) {
			var c *holdfast.Client
			c = w.client(holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == holdfast.EventAcquired && e.Name == "b" {
					c.Close()
				}
			}))
			w.lock(c)
			c.Lock(w.Context(), "b")
			w.free("n")
		},
		// The time that Close has for the store must not be used up by the observer.
		"a slow observer does not keep it from releasing locks": func(w *world) {
			var released atomic.Int64
			c := w.client(holdfast.WithObserver(func(e holdfast.Event) {
				if e.Kind == holdfast.EventReleased {
					released.Add(1)
					time.Sleep(time.Second)
				}
			}))
			names := make([]string, 10)
			for i := range names {
				names[i] = fmt.Sprint(i)
				mustLock(w, c, names[i])
			}
			must(w, c.Close())
			w.free(names...)
			equal(w, "leases reported as released", released.Load(), 10)
		},
		"it releases many leases at a store that answers": func(w *world) {
			const n = 10_000
			for i := range n {
				mustLock(w, w.c, fmt.Sprint(i))
			}
			w.p.release.set(func(ctx context.Context, name string, id store.ID, keep store.Keep) error {
				time.Sleep(30 * time.Millisecond)
				return w.s.Release(ctx, name, id, keep)
			})
			must(w, w.c.Close())
			w.within(4*time.Second, 6*time.Second) // longer than if the store did not answer
			if page, err := w.s.List(w.Context(), store.Query{Limit: n}); err != nil || len(page.Locks) > 0 {
				w.Errorf("%d locks are left, %v", len(page.Locks), err)
			}
		},
		"Do fails if it is called while the function runs": func(w *world) {
			want(w, w.c.Do(w.Context(), "n", func(ctx context.Context) error {
				go w.c.Close()
				time.Sleep(time.Second)
				mustUnlock(w, w.lock(w.other)) // another client has held it meanwhile
				return nil
			}), holdfast.ErrClosed)
			c := w.client()
			want(w, c.Do(w.Context(), "n", func(context.Context) error {
				time.Sleep(2 * time.Second) // MaxHold is over: lost before
				c.Close()
				return nil
			}, holdfast.MaxHold(time.Second)), holdfast.ErrLost)
		},
		"a LockAll that it ends ignores MinHold": func(w *world) {
			mustLock(w, w.other, "y")
			over := make(chan error)
			go func() {
				over <- errOf(w.c.LockAll(context.Background(), []string{"x", "y"}, holdfast.MinHold(time.Hour)))
			}()
			synctest.Wait()
			w.c.Close()
			want(w, <-over, holdfast.ErrClosed)
			w.free("x")
		},
	}.run(t)
}
