package measure

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

var quick = Options{Time: 50 * time.Millisecond, Goroutines: 8}

// A counting store records the load, and calls after when it has served some calls.
type counting struct {
	*memstore.Store
	now, most, calls atomic.Int64
	limit            int64
	after            func() error
	other            atomic.Bool // a name that is not a scratch name was used
}

func (c *counting) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	if !strings.HasPrefix(req.Name, prefix) {
		c.other.Store(true)
	}
	if c.calls.Add(1) > c.limit && c.after != nil {
		if err := c.after(); err != nil {
			return store.Answer{}, err
		}
	}
	return c.Store.Acquire(ctx, req)
}

func (c *counting) empty(t *testing.T) {
	t.Helper()
	if page, err := c.List(t.Context(), store.Query{}); err != nil || len(page.Locks) > 0 {
		t.Errorf("left behind: %+v, %v", page.Locks, err)
	}
}

func TestEveryFigureIsMeasuredWithABoundedLoad(t *testing.T) {
	c := &counting{Store: memstore.New()}
	results, err := Run(t.Context(), c, c, quick)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Value <= 0 || r.Text == "" || (r.Limit > 0) != (r.ID == "pairs.one" || r.ID == "pairs.many") {
			t.Errorf("%+v", r)
		}
	}
	if len(results) != 7 {
		t.Errorf("%d figures", len(results))
	}
	if most := c.most.Load(); most > int64(quick.Goroutines) {
		t.Errorf("%d calls at a time, want at most %d", most, quick.Goroutines)
	}
	if c.other.Load() {
		t.Error("a name that is not a scratch name was used")
	}
	c.empty(t)
}

func TestAFailureOrAnInterruptLeavesNothing(t *testing.T) {
	stopped := errors.New("stopped")
	for _, limit := range []int64{1, 1000} {
		c := &counting{Store: memstore.New(), limit: limit, after: func() error { return store.ErrInvalid }}
		if _, err := Run(t.Context(), c, c, quick); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("after %d calls: %v", limit, err)
		}
		c.empty(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		c = &counting{Store: memstore.New(), limit: limit, after: func() error { cancel(stopped); return nil }}
		if _, err := Run(ctx, c, c, quick); !errors.Is(err, stopped) {
			t.Errorf("interrupted after %d calls: %v", limit, err)
		}
		c.empty(t)
	}
}
