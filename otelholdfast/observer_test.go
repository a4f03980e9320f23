package otelholdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/otelholdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// A bench is an Observer together with the metrics and spans that it has recorded.
type bench struct {
	t        *testing.T
	reader   *metric.ManualReader
	spans    *tracetest.SpanRecorder
	tracers  *trace.TracerProvider
	observer *otelholdfast.Observer
}

func newBench(t *testing.T, opts ...otelholdfast.Option) *bench {
	t.Helper()
	b := &bench{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	b.tracers = trace.NewTracerProvider(trace.WithSpanProcessor(b.spans))
	observer, err := otelholdfast.New(append(opts,
		otelholdfast.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(b.reader))),
		otelholdfast.WithTracerProvider(b.tracers))...)
	must(t, err)
	b.observer = observer
	return b
}

// client returns a client of a store in memory that reports to the Observer.
func (b *bench) client(s store.Store, opts ...holdfast.Option) *holdfast.Client {
	b.t.Helper()
	return suites.Client(b.t, s, append(opts, holdfast.WithObserver(b.observer.Observe))...)
}

func (b *bench) lock(ctx context.Context, c *holdfast.Client, name string, opts ...holdfast.CallOption) *holdfast.Lease {
	b.t.Helper()
	lease, err := c.Lock(ctx, name, opts...)
	must(b.t, err)
	return lease
}

// value returns the sum of a metric over the points that have all these attributes, each as
// "key=value". For a histogram it returns the count.
func (b *bench) value(name string, attrs ...string) int64 {
	b.t.Helper()
	has := func(set attribute.Set) bool {
		return !slices.ContainsFunc(attrs, func(want string) bool {
			key, value, _ := strings.Cut(want, "=")
			got, ok := set.Value(attribute.Key(key))
			return !ok || got.AsString() != value
		})
	}
	var total int64
	switch data := b.data(name).(type) {
	case nil: // no event yet
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			if has(p.Attributes) {
				total += p.Value
			}
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			if has(p.Attributes) {
				total += int64(p.Count)
			}
		}
	default:
		b.t.Fatalf("%s is a %T", name, data)
	}
	return total
}

func (b *bench) data(name string) metricdata.Aggregation {
	b.t.Helper()
	var all metricdata.ResourceMetrics
	must(b.t, b.reader.Collect(context.Background(), &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name == name {
			return m.Data
		}
	}
	return nil
}

func (b *bench) want(want int64, name string, attrs ...string) {
	b.t.Helper()
	if got := b.value(name, attrs...); got != want {
		b.t.Errorf("%s%v is %d, want %d", name, attrs, got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A lateStore answers renewals after a delay.
type lateStore struct {
	store.Store
	delay time.Duration
}

func (l *lateStore) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	time.Sleep(l.delay)
	return l.Store.Renew(ctx, grants)
}

// bucket returns the bounds of the bucket of a histogram that has all its values.
func (b *bench) bucket(name string) (low, high float64) {
	b.t.Helper()
	p := b.data(name).(metricdata.Histogram[float64]).DataPoints[0]
	i := slices.Index(p.BucketCounts, p.Count)
	if i < 0 {
		b.t.Fatalf("%s has values in several buckets: %v", name, p.BucketCounts)
	}
	bounds := append(slices.Clone(p.Bounds), 1)
	return bounds[max(0, i-1)], bounds[i]
}

// The alert of late renewals compares the slack with one number for all TTLs.
func TestTheSlackIsTheShareThatWasLeftOfTheOldLease(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 3 * time.Second, 30 * time.Second, 5 * time.Minute} {
		term := ttl - min(ttl/20, time.Second) // the lease ends a little before the TTL
		for _, late := range []time.Duration{0, ttl / 7, ttl * 4 / 9} {
			want := float64(term-ttl/3-late) / float64(term)
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				lease := b.lock(t.Context(), b.client(&lateStore{memstore.New(), late}, holdfast.WithTTL(ttl)), "a", holdfast.NoRenew())
				time.Sleep(ttl / 3)
				must(t, lease.Renew(t.Context()))
				if low, high := b.bucket("holdfast.renew.slack"); want < low || want > high {
					t.Errorf("TTL %v, a reply after %v: the slack is from %v to %v, want %v", ttl, late, low, high, want)
				}
			})
		}
	}
}

// Candidates wait for as long as another one leads, which is no sign of a problem.
func TestCandidatesDoNotCountAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s := newBench(t), memstore.New()
		one, two := b.client(s), b.client(s)
		first, resign := context.WithCancel(t.Context())
		second, stop := context.WithCancel(t.Context())
		lead := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		go one.Campaign(first, "leader", lead)
		synctest.Wait()
		done := make(chan struct{})
		go func() {
			two.Campaign(second, "leader", lead)
			close(done)
		}()
		time.Sleep(time.Hour)
		b.want(0, "holdfast.waiting")
		b.want(1, "holdfast.standby")
		b.want(1, "holdfast.acquire.duration")
		resign()
		time.Sleep(time.Second)
		b.want(0, "holdfast.standby")
		b.want(0, "holdfast.waiting")
		b.want(1, "holdfast.held")
		b.want(1, "holdfast.acquire.duration") // that of the first candidate, which did not wait
		stop()
		<-done
	})
}

func TestMetricsFollowALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, s, ctx := newBench(t), memstore.New(), t.Context()
		c, other := b.client(s), b.client(s)
		lease := b.lock(ctx, c, "order:42")
		b.want(1, "holdfast.held", "holdfast.store=memory", "holdfast.mode=exclusive")
		b.want(0, "holdfast.held", "holdfast.name=order:42") // names are attributes only with WithNames
		b.want(1, "holdfast.acquire.duration", "holdfast.result=acquired")

		waited := make(chan error)
		go func() {
			_, err := other.Lock(ctx, "order:42", holdfast.Wait(15*time.Second))
			waited <- err
		}()
		synctest.Wait()
		b.want(1, "holdfast.waiting")
		if err := <-waited; !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		b.want(0, "holdfast.waiting")
		b.want(1, "holdfast.acquire.duration", "holdfast.result=held")
		b.want(1, "holdfast.renewals", "holdfast.result=ok")
		b.want(1, "holdfast.renew.slack")

		handed := make(chan *holdfast.Lease)
		go func() {
			lease, err := c.Lock(ctx, "order:42")
			if err != nil {
				t.Error(err)
			}
			handed <- lease
		}()
		synctest.Wait()
		must(t, lease.Unlock(ctx))
		lease = <-handed
		b.want(1, "holdfast.acquire.duration", "holdfast.result=handed_over")
		b.want(1, "holdfast.held")
		b.want(1, "holdfast.hold.duration", "holdfast.end=released")

		must(t, c.Break(ctx, "order:42", lease.ID()))
		<-lease.Done()
		synctest.Wait()
		b.want(0, "holdfast.held")
		b.want(1, "holdfast.losses", "holdfast.reason=gone")
		b.want(1, "holdfast.hold.duration", "holdfast.end=lost")

		lease = b.lock(ctx, c, "job", holdfast.MaxHold(time.Second))
		<-lease.Done()
		synctest.Wait()
		b.want(1, "holdfast.losses", "holdfast.reason=max_hold")
		lease = b.lock(ctx, c, "job", holdfast.NoRenew())
		<-lease.Done()
		synctest.Wait()
		b.want(1, "holdfast.losses", "holdfast.reason=expired")
		b.want(0, "holdfast.held")
	})
}

func TestNamesAreGroupedAndBounded(t *testing.T) {
	group := func(name string) string { kind, _, _ := strings.Cut(name, ":"); return kind }
	b := newBench(t, otelholdfast.WithNames(2, group))
	c := b.client(memstore.New())
	for _, name := range []string{"order:1", "order:2", "user:1", "job:1", "leader:1", "order:3"} {
		lease := b.lock(t.Context(), c, name)
		defer lease.Unlock(t.Context())
	}
	b.want(3, "holdfast.held", "holdfast.name=order")
	b.want(1, "holdfast.held", "holdfast.name=user")
	b.want(2, "holdfast.held", "holdfast.name=other")
}

func TestSpansAreChildrenOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		c := b.client(memstore.New())
		ctx, parent := b.tracers.Tracer("test").Start(t.Context(), "request")
		lease := b.lock(ctx, c, "order:42")
		time.Sleep(3 * time.Second)
		must(t, lease.Unlock(context.Background()))
		b.lock(ctx, c, "order:42")
		if _, err := c.TryLock(ctx, "order:42"); !errors.Is(err, holdfast.ErrHeld) {
			t.Fatal(err)
		}
		parent.End()
		var seen []string
		for _, span := range b.spans.Ended() {
			if span.Name() == "request" {
				continue
			}
			if span.Parent().SpanID() != parent.SpanContext().SpanID() {
				t.Errorf("%s is no child of the caller's span", span.Name())
			}
			seen = append(seen, fmt.Sprintf("%s %v %v", span.Name(), span.EndTime().Sub(span.StartTime()), span.Status().Code))
		}
		want := []string{"holdfast.acquire 0s Unset", "holdfast.hold 3s Unset", "holdfast.acquire 0s Unset", "holdfast.acquire 0s Error"}
		if !slices.Equal(seen, want) {
			t.Errorf("spans %q, want %q", seen, want)
		}
	})
}

// The second call has what its caller wants.
func TestWorkThatWasDoneBeforeIsNoError(t *testing.T) {
	b := newBench(t)
	c, ctx := b.client(memstore.New()), t.Context()
	for _, want := range []error{nil, holdfast.ErrDone} {
		if err := c.Once(ctx, "report", time.Hour, func(context.Context) error { return nil }); !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	b.want(1, "holdfast.acquire.duration", "holdfast.result=acquired")
	b.want(1, "holdfast.acquire.duration", "holdfast.result=done")
	for _, span := range b.spans.Ended() {
		if span.Status().Code == codes.Error {
			t.Errorf("%s has the status %+v", span.Name(), span.Status())
		}
	}
}

func TestStaleWritesAreCounted(t *testing.T) {
	b := newBench(t)
	stale := &fence.StaleError{Token: 1, Highest: 2}
	if err := b.observer.Fence(t.Context(), stale); err != error(stale) {
		t.Errorf("%v, want the error as it was", err)
	}
	if err := b.observer.Fence(t.Context(), nil); err != nil {
		t.Error(err)
	}
	b.want(1, "holdfast.fence.rejections")
}

// Two stores of the same kind give the same token to the same name.
func TestOneObserverServesTwoStoresOfOneKind(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	var leases []*holdfast.Lease
	for range 2 {
		leases = append(leases, b.lock(ctx, b.client(memstore.New()), "n"))
	}
	if leases[0].Token() != leases[1].Token() {
		t.Fatalf("tokens %d and %d, want the same", leases[0].Token(), leases[1].Token())
	}
	holds := 0
	for _, lease := range leases {
		must(t, lease.Unlock(ctx))
	}
	for _, span := range b.spans.Ended() {
		if span.Name() == "holdfast.hold" {
			holds++
		}
	}
	if holds != 2 {
		t.Errorf("%d spans of held locks have ended, want 2", holds)
	}
}
