package otelholdfast

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
)

const scope = "github.com/holdfast-lock/holdfast/otelholdfast"

// An Observer turns the events of one or several clients into metrics and spans.
type Observer struct {
	tracer trace.Tracer
	names  func(string) string // nil if names are not an attribute

	acquire, hold, slack         metric.Float64Histogram
	held, waiting, standby       metric.Int64UpDownCounter
	renewals, losses, leaks      metric.Int64Counter
	storeErrors, fenceRejections metric.Int64Counter

	holds   sync.Map // maps holdKey to trace.Span, for recorded spans
	started sync.Map // keys are the series whose counters were started
}

// A series identifies counters that are started together.
type series struct {
	store string
	mode  holdfast.Mode
	name  string // as WithNames groups it; empty without it
}

// holdKey identifies a lease. Leases that were handed over have the same ID and different tokens.
type holdKey struct {
	id    holdfast.ID
	token int64
}

// New returns an Observer, whose method Observe is for holdfast.WithObserver. It returns an error if an
// instrument cannot be created.
func New(opts ...Option) (*Observer, error) {
	s := settings{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&s)
	}
	m := s.meters.Meter(scope)
	o := &Observer{tracer: s.tracers.Tracer(scope), names: s.names}
	var failed []error
	histogram := func(name, unit string, bounds []float64, text string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(text), metric.WithExplicitBucketBoundaries(bounds...))
		failed = append(failed, err)
		return h
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		failed = append(failed, err)
		return c
	}
	gauge := func(name, unit, text string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		failed = append(failed, err)
		return c
	}
	o.acquire = histogram("holdfast.acquire.duration", "s", seconds, "Duration of acquiring calls, with or without success.")
	o.hold = histogram("holdfast.hold.duration", "s", seconds, "Time for which leases were held.")
	o.slack = histogram("holdfast.renew.slack", "1", shares, "Share of a lease that was left when its renewal was answered.")
	o.held = gauge("holdfast.held", "{lock}", "Leases held now.")
	o.waiting = gauge("holdfast.waiting", "{call}", "Calls that wait for a lock now.")
	o.standby = gauge("holdfast.standby", "{call}", "Candidates of a Campaign that wait until they lead.")
	o.renewals = counter("holdfast.renewals", "{renewal}", "Renewals, by result.")
	o.losses = counter("holdfast.losses", "{lock}", "Leases that ended before they were unlocked.")
	o.leaks = counter("holdfast.leaks", "{lock}", "Leases that the program dropped without Unlock.")
	o.storeErrors = counter("holdfast.errors", "{error}", "Failed calls to the store while acquiring or releasing.")
	o.fenceRejections = counter("holdfast.fence.rejections", "{write}", "Writes that a resource refused because of a stale token.")
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	o.fenceRejections.Add(context.Background(), 0) // see start
	return o, nil
}

// seconds are bounds from below a hand-over, which takes a microsecond, to jobs that take hours.
var seconds = []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 3600}

// shares are the bounds of the slack. A renewal is due after a third of the TTL, so about 0.65 are left
// if it is answered at once. Less than that shows retries or a slow store.
var shares = []float64{.02, .05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .55, .6, .65, .7, .8, .9}

// Observe records one event. It is a holdfast.Observer.
func (o *Observer) Observe(e holdfast.Event) {
	ctx := cmp.Or(e.Context, context.Background())
	o.start(ctx, &e)
	switch e.Kind {
	case holdfast.EventWaiting:
		o.queue(&e).Add(ctx, 1, o.attributes(&e))
	case holdfast.EventAcquired, holdfast.EventHandedOver, holdfast.EventGaveUp:
		o.called(ctx, &e)
	case holdfast.EventRenewed:
		o.renewals.Add(ctx, 1, o.attributes(&e, attribute.String("holdfast.result", "ok")))
		if e.Term > 0 {
			o.slack.Record(ctx, float64(e.Slack)/float64(e.Term), o.attributes(&e))
		}
	case holdfast.EventReleased:
		o.ended(ctx, &e, "released")
	case holdfast.EventLost:
		o.losses.Add(ctx, 1, o.attributes(&e, attribute.String("holdfast.reason", e.Reason)))
		o.ended(ctx, &e, "lost")
	case holdfast.EventLeaked:
		o.leaks.Add(ctx, 1, o.attributes(&e))
	case holdfast.EventError:
		if e.Attempt == 0 {
			o.renewals.Add(ctx, 1, o.attributes(&e, attribute.String("holdfast.result", "error")))
			return
		}
		o.storeErrors.Add(ctx, 1, o.attributes(&e))
	}
}

// start begins the counters of failures with 0, at the first event that concerns them, because a
// database that computes their increase would miss a failure with which they begin.
func (o *Observer) start(ctx context.Context, e *holdfast.Event) {
	key := series{store: e.Store, mode: e.Mode}
	if o.names != nil {
		key.name = o.names(e.Name)
	}
	if _, ok := o.started.LoadOrStore(key, nil); ok {
		return
	}
	for _, reason := range []string{"expired", "gone", "max_hold"} {
		o.losses.Add(ctx, 0, o.attributes(e, attribute.String("holdfast.reason", reason)))
	}
	for _, result := range []string{"ok", "error"} {
		o.renewals.Add(ctx, 0, o.attributes(e, attribute.String("holdfast.result", result)))
	}
	o.leaks.Add(ctx, 0, o.attributes(e))
	o.storeErrors.Add(ctx, 0, o.attributes(e))
}

// Fence returns err, and counts it as a rejection if it matches fence.ErrStale. On the resource's side,
// pass the error of every check of a token through it.
func (o *Observer) Fence(ctx context.Context, err error) error {
	if errors.Is(err, fence.ErrStale) {
		o.fenceRejections.Add(ctx, 1)
	}
	return err
}

func (o *Observer) called(ctx context.Context, e *holdfast.Event) {
	result := attribute.String("holdfast.result", result(e))
	if e.Queued {
		o.queue(e).Add(ctx, -1, o.attributes(e))
	}
	if !e.Standby || !e.Queued || errors.Is(e.Err, holdfast.ErrUnavailable) { // how long another candidate led is not a duration of this call
		o.acquire.Record(ctx, e.Waited.Seconds(), o.attributes(e, result))
	}
	now := time.Now()
	_, span := o.tracer.Start(ctx, "holdfast.acquire", trace.WithTimestamp(now.Add(-e.Waited)), trace.WithAttributes(o.spanAttributes(e)...))
	span.SetAttributes(result)
	if e.Err != nil && !errors.Is(e.Err, holdfast.ErrDone) {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(now))
	if e.Kind == holdfast.EventGaveUp {
		return
	}
	o.held.Add(ctx, 1, o.attributes(e))
	_, hold := o.tracer.Start(ctx, "holdfast.hold", trace.WithTimestamp(now), trace.WithAttributes(o.spanAttributes(e)...))
	if hold.IsRecording() {
		o.holds.Store(holdKey{e.ID, e.Token}, hold)
	}
}

func (o *Observer) queue(e *holdfast.Event) metric.Int64UpDownCounter {
	if e.Standby {
		return o.standby
	}
	return o.waiting
}

func (o *Observer) ended(ctx context.Context, e *holdfast.Event, how string) {
	end := attribute.String("holdfast.end", how)
	o.held.Add(ctx, -1, o.attributes(e))
	o.hold.Record(ctx, e.Held.Seconds(), o.attributes(e, end))
	if span, ok := o.holds.LoadAndDelete(holdKey{e.ID, e.Token}); ok {
		hold := span.(trace.Span)
		hold.SetAttributes(end)
		if e.Err != nil {
			hold.SetStatus(codes.Error, e.Err.Error())
		}
		hold.End()
	}
}

// attributes returns the attributes of a metric.
func (o *Observer) attributes(e *holdfast.Event, more ...attribute.KeyValue) metric.MeasurementOption {
	attrs := append(more, attribute.String("holdfast.store", e.Store), attribute.String("holdfast.mode", e.Mode.String()))
	if o.names != nil {
		attrs = append(attrs, attribute.String("holdfast.name", o.names(e.Name)))
	}
	return metric.WithAttributes(attrs...)
}

// spanAttributes returns the attributes of a span. The number of different names does not matter there.
func (o *Observer) spanAttributes(e *holdfast.Event) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("holdfast.store", e.Store),
		attribute.String("holdfast.mode", e.Mode.String()),
		attribute.String("holdfast.name", e.Name),
	}
	if e.Token != 0 {
		attrs = append(attrs, attribute.Int64("holdfast.token", e.Token))
	}
	return attrs
}

// result describes how an acquiring call ended.
func result(e *holdfast.Event) string {
	switch {
	case e.Kind == holdfast.EventAcquired:
		return "acquired"
	case e.Kind == holdfast.EventHandedOver:
		return "handed_over"
	case errors.Is(e.Err, holdfast.ErrDone):
		return "done"
	case errors.Is(e.Err, holdfast.ErrHeld):
		return "held"
	case errors.Is(e.Err, holdfast.ErrUnavailable):
		return "unavailable"
	case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded):
		return "canceled"
	}
	return "error"
}
