package measure

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

var quick = Options{Time: 50 * time.Millisecond, Goroutines: 8}

func quiet(int, string) {}

func empty(t *testing.T, s store.Store) {
	t.Helper()
	page, err := s.List(t.Context(), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Locks) > 0 {
		t.Errorf("left behind: %+v", page.Locks)
	}
}

func TestEveryFigureIsMeasured(t *testing.T) {
	s := memstore.New()
	steps := 0
	begin := time.Now()
	results, err := Run(t.Context(), s, s, quick, func(step int, _ string) {
		if steps++; step != steps {
			t.Errorf("step %d after %d", step, steps-1)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if steps != Steps {
		t.Errorf("%d steps, want %d", steps, Steps)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("%v for %d steps of %v", took, Steps, quick.Time)
	}
	seen := make(map[string]Result)
	for _, r := range results {
		if r.Value <= 0 || r.Text == "" {
			t.Errorf("%+v", r)
		}
		seen[r.ID] = r
	}
	for _, id := range []string{"round-trip.p50", "round-trip.p99", "pairs.one", "pairs.many", "pairs.hot", "hand-off.p50", "hand-off.p99"} {
		if _, ok := seen[id]; !ok {
			t.Errorf("no %s", id)
		}
	}
	if seen["pairs.one"].Limit == 0 || seen["pairs.many"].Limit == 0 {
		t.Error("no limit")
	}
	empty(t, s)
}

// A counting store records the load, and fails after some calls.
type counting struct {
	*memstore.Store
	now, most, calls atomic.Int64
	failAfter        int64
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
	if c.calls.Add(1) > c.failAfter && c.failAfter > 0 {
		return store.Answer{}, store.ErrInvalid
	}
	return c.Store.Acquire(ctx, req)
}

func TestTheLoadIsBoundedAndUsesScratchNames(t *testing.T) {
	c := &counting{Store: memstore.New()}
	if _, err := Run(t.Context(), c, c, quick, quiet); err != nil {
		t.Fatal(err)
	}
	if most := c.most.Load(); most > int64(quick.Goroutines) {
		t.Errorf("%d calls at a time, want at most %d", most, quick.Goroutines)
	}
	if c.other.Load() {
		t.Error("a name that is not a scratch name was used")
	}
}

func TestAFailureEndsTheMeasurementAndLeavesNothing(t *testing.T) {
	for _, after := range []int64{1, 1000} {
		c := &counting{Store: memstore.New(), failAfter: after}
		if _, err := Run(t.Context(), c, c, quick, quiet); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("after %d calls: %v", after, err)
		}
		empty(t, c.Store)
	}
}

func TestAnInterruptEndsTheMeasurementAndLeavesNothing(t *testing.T) {
	s := memstore.New()
	for stop := 1; stop <= Steps; stop++ {
		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		begin := time.Now()
		_, err := Run(ctx, s, s, Options{Time: time.Second / 10, Goroutines: 4}, func(step int, _ string) {
			if step == stop {
				time.AfterFunc(20*time.Millisecond, func() { cancel(stopped) })
			}
		})
		if !errors.Is(err, stopped) {
			t.Errorf("step %d: %v", stop, err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("step %d: %v", stop, took)
		}
		empty(t, s)
	}
}

func TestTheChartIsWellFormed(t *testing.T) {
	chart := Chart(`redis://h & "co" <x>`, []Result{{"a", "a < b", 1234.5, Pairs, 2000}, {"b", "b", 3, Pairs, 0}, {"c", "c", 0.05, Milliseconds, 0}})
	decoder := xml.NewDecoder(strings.NewReader(chart))
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v:\n%s", err, chart)
		}
	}
	for _, want := range []string{"1,23", "limit: 2,000", "0.050 ms", "a &lt; b"} {
		if !strings.Contains(chart, want) {
			t.Errorf("no %q in:\n%s", want, chart)
		}
	}
}
