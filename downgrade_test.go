package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// read takes "n" as a reader, which must be possible at once.
func (w *world) read(c *holdfast.Client) *holdfast.Lease {
	w.Helper()
	reader, err := c.TryRLock(w.Context(), "n")
	must(w, err)
	return reader
}

func TestDowngrade(t *testing.T) {
	scenarios{
		"it admits readers but no writer": func(w *world) {
			lease := w.lock(w.c)
			readers := make(chan *holdfast.Lease, 2)
			for _, c := range []*holdfast.Client{w.other, w.c} {
				go func() {
					reader, err := c.RLock(context.Background(), "n")
					must(w, err)
					readers <- reader
				}()
				synctest.Wait()
			}
			must(w, lease.Downgrade(w.Context()))
			equal(w, "mode", lease.Mode(), store.Shared)
			r1, r2 := <-readers, <-readers
			writer := w.later(w.other)
			time.Sleep(10 * time.Minute) // renewed as a reader
			must(w, lease.Downgrade(w.Context()))
			for _, reader := range []*holdfast.Lease{lease, r1, r2} {
				equal(w, "writers beside a reader", len(writer), 0)
				mustUnlock(w, reader)
			}
			mustUnlock(w, <-writer)
		},
		"with a lost reply the lease counts as shared": func(w *world) {
			lease := w.lock(w.c)
			w.p.renew.set(failRenew)
			want(w, lease.Downgrade(w.Context()), holdfast.ErrUnavailable)
			equal(w, "mode, though the store may have let readers in", lease.Mode(), store.Shared)
			w.p.renew.reset()
			time.Sleep(15 * time.Second) // the next renewal tells the store
			mustUnlock(w, w.read(w.other))
			mustUnlock(w, lease)
			w.free("n")
		},
		// Such a store extends grants, but cannot change their mode.
		"at a full store it keeps the lease and is made later": func(w *world) {
			lease := w.lock(w.c)
			w.p.renew.set(func(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
				grants[0].Mode = store.Exclusive
				out, err := w.s.Renew(ctx, grants)
				out[0].Err = errNet
				return out, err
			})
			want(w, lease.Downgrade(w.Context()), holdfast.ErrUnavailable, errNet)
			must(w, lease.Renew(w.Context()))
			time.Sleep(10 * time.Minute)
			must(w, lease.Err())
			equal(w, "mode", lease.Mode(), store.Shared)
			w.p.renew.reset()
			time.Sleep(15 * time.Second)
			w.read(w.other)
		},
		"racing with an unlock it does not affect the next holder": func(w *world) {
			first := w.lock(w.c)
			got := w.later(w.c)
			ctx := &hookCtx{Context: w.Context(), f: func() { mustUnlock(w, first) }}
			want(w, first.Downgrade(ctx), holdfast.ErrNotHeld)
			<-got
			want(w, errOf(w.other.TryRLock(w.Context(), "n")), holdfast.ErrHeld)
		},
		"during a hand-over it does not strand waiters": func(w *world) {
			first := w.lock(w.c)
			got := []<-chan *holdfast.Lease{w.later(w.c), w.later(w.c)}
			w.p.renew.set(func(ctx context.Context, g []store.Renewal) ([]store.Renewed, error) {
				time.Sleep(time.Second)
				return w.s.Renew(ctx, g)
			})
			// The unlock starts after Downgrade has checked that the lease is held.
			first.Downgrade(&hookCtx{Context: w.Context(), f: func() { go first.Unlock(context.Background()); synctest.Wait() }})
			for _, got := range got {
				next := <-got
				if _, err := w.other.TryRLock(w.Context(), "n"); err == nil && next.Err() == nil {
					w.Error("a reader beside an exclusive lease")
				}
				mustUnlock(w, next)
			}
		},
	}.run(t)
}
