package holdfast_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

// failing is a store whose management calls fail.
type failing struct{ store.Store }

func (failing) List(context.Context, store.Query) (store.Page, error) { return store.Page{}, errNet }

func (failing) Break(context.Context, string, store.ID) error { return errNet }

func TestManagement(t *testing.T) {
	scenarios{
		"Inspect reports holders and waiters": func(w *world) {
			lease := w.lock(w.c, holdfast.Meta("deploy"))
			time.Sleep(time.Second)
			go w.other.RLock(w.Context(), "n", holdfast.Meta("report"), holdfast.Wait(3*time.Second))
			time.Sleep(2 * time.Second)
			info, err := w.other.Inspect(w.Context(), "n")
			if err != nil || info.Name != "n" || len(info.Holders) != 1 || len(info.Waiters) != 1 {
				w.Fatalf("%+v, %v", info, err)
			}
			equal(w, "holder", info.Holders[0], holdfast.Holder{
				ID: lease.ID(), Owner: "alice", Meta: "deploy", Mode: store.Exclusive, Weight: 1, Token: lease.Token(),
				Age: 3 * time.Second, Left: 27 * time.Second,
			})
			if w1 := info.Waiters[0]; w1.Owner != "bob" || w1.Meta != "report" || w1.Mode != store.Shared || w1.Age != 2*time.Second {
				w.Errorf("waiter %+v", w1)
			}
			time.Sleep(2 * time.Second)
			mustUnlock(w, lease)
			info, err = w.other.Inspect(w.Context(), "n")
			if err != nil || len(info.Holders) != 0 || len(info.Waiters) != 0 || info.Name != "n" {
				w.Errorf("a free name: %+v, %v", info, err)
			}
		},
		"List returns names under the client's prefix": func(w *world) {
			shop := newClient(w, w.s, holdfast.WithPrefix("shop:"))
			for i := range 250 {
				mustLock(w, shop, fmt.Sprintf("order:%d", i))
				mustLock(w, w.other, fmt.Sprintf("post:%d", i))
			}
			mustLock(w, shop, "stock")
			for prefix, want := range map[string]int{"order:": 250, "": 251, "post:": 0} {
				names := map[string]bool{}
				for info, err := range shop.List(w.Context(), prefix) {
					must(w, err)
					names[info.Name] = true
				}
				equal(w, "names with the prefix "+prefix, len(names), want)
			}
			for range shop.List(w.Context(), "") {
				break // stops reading
			}
		},
		"Break ends exactly the grant that was seen": func(w *world) {
			first := w.lock(w.c)
			mustUnlock(w, first)
			second := w.lock(w.c)
			want(w, w.other.Break(w.Context(), "n", first.ID()), holdfast.ErrNotHeld)
			must(w, second.Renew(w.Context()))
			must(w, w.other.Break(w.Context(), "n", second.ID()))
			if third := w.lock(w.other); third.Token() <= second.Token() {
				w.Errorf("token %d after %d", third.Token(), second.Token())
			}
			want(w, second.Renew(w.Context()), holdfast.ErrLost)
		},
		"calls report why they failed": func(w *world) {
			c := newClient(w, failing{memstore.New()})
			_, err := c.Inspect(w.Context(), "n")
			want(w, err, holdfast.ErrUnavailable, errNet)
			want(w, c.Break(w.Context(), "n", store.NewID()), holdfast.ErrUnavailable, errNet)
			for _, err := range c.List(w.Context(), "") {
				want(w, err, holdfast.ErrUnavailable, errNet)
			}
			c.Close()
			_, err = c.Inspect(w.Context(), "n")
			want(w, err, holdfast.ErrClosed)
			wantNone(w, err, holdfast.ErrUnavailable)
			w.p.caps = func(caps *store.Capabilities) { caps.Features &^= store.FeatureList }
			want(w, errOf(w.client().Inspect(w.Context(), "n")), holdfast.ErrUnsupported)
		},
	}.run(t)
}
