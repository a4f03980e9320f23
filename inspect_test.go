package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestInspectReportsHoldersAndWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		lease := mustLock(t, a, "n", holdfast.Meta("deploy"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.Sleep(time.Second)
		go b.RLock(ctx, "n", holdfast.Meta("report"))
		time.Sleep(2 * time.Second)
		info, err := b.Inspect(t.Context(), "n")
		if err != nil || info.Name != "n" || len(info.Holders) != 1 || len(info.Waiters) != 1 {
			t.Fatalf("%+v, %v", info, err)
		}
		h := info.Holders[0]
		if h.ID != lease.ID() || h.Owner != "alice" || h.Meta != "deploy" || h.Mode != store.Exclusive || h.Weight != 1 || h.Token != lease.Token() || h.State != store.Held || h.Age != 3*time.Second || h.Left != 27*time.Second {
			t.Errorf("holder %+v", h)
		}
		w := info.Waiters[0]
		if w.Owner != "bob" || w.Meta != "report" || w.Mode != store.Shared || w.Age != 2*time.Second {
			t.Errorf("waiter %+v", w)
		}
		cancel()
		synctest.Wait()
		mustUnlock(t, lease)
		info, err = b.Inspect(t.Context(), "n")
		if err != nil || len(info.Holders) != 0 || len(info.Waiters) != 0 || info.Name != "n" {
			t.Errorf("a free name: %+v, %v", info, err)
		}
	})
}

func TestListReturnsNamesUnderTheClientsPrefix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memstore.New()
		shop, blog := newClient(t, s, holdfast.WithPrefix("shop:")), newClient(t, s, holdfast.WithPrefix("blog:"))
		for i := range 250 {
			mustLock(t, shop, fmt.Sprintf("order:%d", i))
			mustLock(t, blog, fmt.Sprintf("post:%d", i))
		}
		mustLock(t, shop, "stock")
		count := func(prefix string) int {
			names := map[string]bool{}
			for info, err := range shop.List(t.Context(), prefix) {
				if err != nil {
					t.Fatal(err)
				}
				names[info.Name] = true
			}
			return len(names)
		}
		if n := count("order:"); n != 250 {
			t.Errorf("%d orders", n)
		}
		if n := count(""); n != 251 {
			t.Errorf("%d names", n)
		}
		if n := count("post:"); n != 0 {
			t.Errorf("%d names of another namespace", n)
		}
		for range shop.List(t.Context(), "") {
			break // stops reading
		}
	})
}

func TestBreakEndsExactlyTheGrantThatWasSeen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		first := mustLock(t, a, "n")
		seen := first.ID()
		mustUnlock(t, first)
		second := mustLock(t, a, "n")
		want(t, b.Break(t.Context(), "n", seen), holdfast.ErrNotHeld)
		if err := second.Renew(t.Context()); err != nil {
			t.Errorf("a break of an old grant touched a newer one: %v", err)
		}
		if err := b.Break(t.Context(), "n", second.ID()); err != nil {
			t.Fatal(err)
		}
		third := mustLock(t, b, "n")
		if third.Token() <= second.Token() {
			t.Errorf("token %d after %d", third.Token(), second.Token())
		}
		want(t, second.Renew(t.Context()), holdfast.ErrLost)
	})
}

func TestBreakOpensAKeptName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		if err := a.Once(t.Context(), "n", time.Hour, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		info, err := b.Inspect(t.Context(), "n")
		if err != nil || len(info.Holders) != 1 || info.Holders[0].State != store.Done {
			t.Fatalf("%+v, %v", info, err)
		}
		if err := b.Break(t.Context(), "n", info.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		free(t, a, "n")
	})
}

func TestForgetLetsOnceRunAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t)
		once := func(c *holdfast.Client, fn func()) error {
			return c.Once(t.Context(), "n", time.Hour, func(context.Context) error { fn(); return nil })
		}
		want(t, b.Forget(t.Context(), "n"), holdfast.ErrNotHeld)
		runs := 0
		for range 2 {
			if err := once(a, func() {
				runs++
				err := b.Forget(t.Context(), "n")
				want(t, err, holdfast.ErrHeld)
				if !strings.Contains(err.Error(), `forget "n": held by alice`) {
					t.Errorf("the error of Forget: %v", err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			want(t, once(b, func() { runs++ }), holdfast.ErrDone)
			if err := b.Forget(t.Context(), "n"); err != nil {
				t.Fatal(err)
			}
		}
		want(t, b.Forget(t.Context(), "n"), holdfast.ErrNotHeld)
		if runs != 2 {
			t.Errorf("ran %d times, want 2", runs)
		}
	})
}

// failing is a store whose management calls fail.
type failing struct{ store.Store }

func (failing) List(context.Context, store.Query) (store.Page, error) { return store.Page{}, errNet }

func (failing) Break(context.Context, string, store.ID) error { return errNet }

func TestOnceRunsAfterForgetAlthoughALockWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, memstore.New())
		runs := 0
		run := func(context.Context) error { runs++; return nil }
		if err := c.Once(t.Context(), "n", time.Hour, run); err != nil {
			t.Fatal(err)
		}
		waiting := later(t, c, "n")
		if err := c.Forget(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
		go func() { (<-waiting).Unlock(context.Background()) }()
		if err := c.Once(t.Context(), "n", time.Hour, run); err != nil || runs != 2 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

func TestManagementCallsReportTheReasonOfAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newClient(t, failing{memstore.New()})
		_, err := c.Inspect(t.Context(), "n")
		want(t, err, holdfast.ErrUnavailable, errNet)
		want(t, c.Break(t.Context(), "n", store.NewID()), holdfast.ErrUnavailable, errNet)
		for _, err := range c.List(t.Context(), "") {
			want(t, err, holdfast.ErrUnavailable, errNet)
		}
		p := newProxy(memstore.New())
		p.caps = func(caps *store.Capabilities) { caps.Features &^= store.FeatureList }
		_, err = newClient(t, p).Inspect(t.Context(), "n")
		want(t, err, holdfast.ErrUnsupported)
		c.Close()
		_, err = c.Inspect(t.Context(), "n")
		want(t, err, holdfast.ErrClosed)
		if errors.Is(err, holdfast.ErrUnavailable) {
			t.Error("a closed client is not an unavailable store")
		}
	})
}
