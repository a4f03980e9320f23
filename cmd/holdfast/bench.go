package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/measure"
)

const (
	minBenchTime  = 100 * time.Millisecond
	maxBenchTime  = time.Minute
	maxGoroutines = 1024
)

type bench struct {
	store storeFlag
	opts  measure.Options
	json  bool
}

func newBenchCommand() *cobra.Command {
	b := &bench{opts: measure.Options{Time: 2 * time.Second, Goroutines: 64}}
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure how fast locks are on a store, from this host",
		Long: `Measures locks and unlocks in a second, and how long a lock takes from one client
to the next. LIMIT is the same of the store alone: its calls to acquire and to
release, without the queues, renewals and deadlines of Holdfast. A round trip is
the mean of these two calls. On one name, a lock is handed over within the
process without a call. It loads the store for about 15 seconds, under scratch
names, of which nothing is left. The limits are measured first, so on a host
whose load changes a result can be above its limit.`,
		Example: `  holdfast bench --store redis://127.0.0.1:6379
  holdfast bench --time 10s --goroutines 8 --store sqlite:/tmp/locks.db`,
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			switch {
			case b.opts.Time < minBenchTime || b.opts.Time > maxBenchTime:
				return usagef("--time %v: want a time from %v to %v", b.opts.Time, minBenchTime, maxBenchTime)
			case b.opts.Goroutines < 1 || b.opts.Goroutines > maxGoroutines:
				return usagef("--goroutines %d: want a number from 1 to %d", b.opts.Goroutines, maxGoroutines)
			}
			ctx, stop := untilSignal()
			defer stop()
			return b.store.withStore(ctx, "", func(first *ttlStore) error { return b.run(ctx, first) })
		},
	}
	b.store.addTo(cmd)
	cmd.Flags().Var((*durationValue)(&b.opts.Time), "time", fmt.Sprintf("time of each of the 6 measurements, at most %v", maxBenchTime))
	cmd.Flags().IntVar(&b.opts.Goroutines, "goroutines", b.opts.Goroutines, fmt.Sprintf("goroutines that lock at the same time, `N` of at most %d", maxGoroutines))
	cmd.Flags().BoolVar(&b.json, "json", false, "print each figure as a line of JSON")
	return cmd
}

func (b *bench) run(ctx context.Context, first *ttlStore) error {
	second, err := b.store.open(ctx) // another connection, like that of another process
	if err != nil {
		return err
	}
	defer second.Close()
	results, err := measure.Run(ctx, first.Store, second.Store, b.opts)
	switch {
	case err != nil:
		return err
	case b.json:
		return outputJSON(results...)
	}
	t := &table{head: []string{"MEASURED", "RESULT", "UNIT", "LIMIT", "RESULT/LIMIT"}}
	for _, r := range results {
		limit, share := "", ""
		if r.Limit > 0 {
			limit, share = number(r.Limit), fmt.Sprintf("%.0f %%", 100*r.Value/r.Limit)
		}
		t.add(r.Text, number(r.Value), r.Unit, limit, share)
	}
	lines := append([]string{fmt.Sprintf("%s, %v for each figure", b.store.text(), b.opts.Time)}, t.lines(0)...)
	return output(strings.Join(lines, "\n") + "\n")
}

// number formats a figure with three digits, or more if it is large.
func number(v float64) string {
	switch {
	case v < 1:
		return fmt.Sprintf("%.3f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
