package otelholdfast

import (
	"sync"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

type settings struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	names   func(string) string
}

// An Option sets up an Observer.
type Option func(*settings)

// WithMeterProvider sets where metrics go. The default is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(s *settings) { s.meters = p }
}

// WithTracerProvider sets where spans go. The default is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *settings) { s.tracers = p }
}

// WithNames adds the attribute holdfast.name to all metrics. Its value is the result of group for the
// name of a lock, such as "order" for "order:42". Every value costs memory in this process and in the
// metrics database, so values after the first limit ones are reported as "other".
func WithNames(limit int, group func(name string) string) Option {
	return func(s *settings) {
		var mu sync.Mutex
		known := make(map[string]bool)
		s.names = func(name string) string {
			value := group(name)
			mu.Lock()
			defer mu.Unlock()
			if !known[value] && len(known) >= limit {
				return "other"
			}
			known[value] = true
			return value
		}
	}
}
