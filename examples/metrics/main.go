// Metrics is a program that serves the metrics of its locks to Prometheus.
//
//	go run ./examples/metrics -listen 127.0.0.1:2112
//	curl -s http://127.0.0.1:2112/metrics | grep holdfast_
//
// The rules in deploy/prometheus and the dashboard in deploy/grafana use these metrics. Copy observed.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/otelholdfast"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:2112", "address and port of the metrics")
	flag.Parse()
	observer, handler, err := observed()
	if err != nil {
		log.Fatal(err)
	}
	c, err := holdfast.New(memstore.New(), holdfast.WithTTL(3*time.Second), holdfast.WithObserver(observer.Observe))
	if err != nil {
		log.Fatal(err)
	}
	for range 4 {
		go work(c)
	}
	http.Handle("GET /metrics", handler)
	log.Fatal(http.ListenAndServe(*listen, nil))
}

// observed returns an Observer, and the handler for its metrics.
func observed() (*otelholdfast.Observer, http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(
		exporter.WithRegisterer(registry),
		// holdfast.acquire.duration becomes holdfast_acquire_duration_seconds, the name in the rules.
		exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
	)
	if err != nil {
		return nil, nil, err
	}
	observer, err := otelholdfast.New(
		otelholdfast.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))),
		// Lock names become an attribute with at most 20 values, such as "order" for "order:42".
		otelholdfast.WithNames(20, func(name string) string {
			kind, _, _ := strings.Cut(name, ":")
			return kind
		}),
	)
	return observer, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), err
}

// work locks orders for a moment, and sometimes for longer than a third of the TTL, so that they are renewed.
func work(c *holdfast.Client) {
	for {
		c.Do(context.Background(), fmt.Sprintf("order:%d", rand.IntN(3)), func(context.Context) error {
			time.Sleep(rand.N(50 * time.Millisecond))
			if rand.IntN(100) == 0 {
				time.Sleep(2 * time.Second)
			}
			return nil
		})
	}
}
