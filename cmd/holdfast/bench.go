package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/measure"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
	"github.com/holdfast-lock/holdfast/store"
)

// Bounds of the load of bench.
const (
	minBenchTime  = 100 * time.Millisecond
	maxBenchTime  = time.Minute
	maxGoroutines = 1024
)

// A bench is one call of the command bench.
type bench struct {
	store storeFlag
	opts  measure.Options
	json  bool
	svg   string
}

func newBenchCommand() *cobra.Command {
	b := &bench{opts: measure.Options{Time: 2 * time.Second, Goroutines: 64}}
	cmd := &cobra.Command{
		Use:   "bench [flags] [STORE]",
		Short: "Measure how fast locks are on a store, from this host",
		Long: `Measures locks and unlocks in a second, and how long a lock takes from one client
to the next. LIMIT is the same of the store alone: its calls to acquire and to
release, without the queues, renewals and deadlines of Holdfast. A round trip is
the mean of these two calls. On one name, a lock is handed over within the
process without a call. It loads the store for about 15 seconds, under scratch
names, of which nothing is left. The limits are measured first, so on a host
whose load changes a result can be above its limit.

STORE is the URL of the store, as for --store.`,
		Example: `  holdfast bench redis://127.0.0.1:6379
  holdfast bench --time 10s --goroutines 8 --svg bench.svg sqlite:/tmp/locks.db`,
		Args: arguments(0, "STORE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := b.check(args); err != nil {
				return err
			}
			return fail(b.run(), "")
		},
	}
	b.store.addTo(cmd)
	cmd.Flags().Var((*durationValue)(&b.opts.Time), "time", fmt.Sprintf("time of each of the %d measurements, at most %v", measure.Steps, maxBenchTime))
	cmd.Flags().IntVar(&b.opts.Goroutines, "goroutines", b.opts.Goroutines, fmt.Sprintf("goroutines that lock at the same time, `N` of at most %d", maxGoroutines))
	cmd.Flags().StringVar(&b.svg, "svg", "", "also draw the result as an image in `FILE`")
	cmd.Flags().BoolVar(&b.json, "json", false, "print each figure as a line of JSON")
	return cmd
}

// check checks the arguments. It does not touch the store.
func (b *bench) check(args []string) error {
	if len(args) > 0 {
		if b.store.flag.Changed {
			return usagef("give the store either as an argument or with --store")
		}
		b.store.url, b.store.flag.Changed = args[0], true
	}
	switch {
	case b.opts.Time < minBenchTime || b.opts.Time > maxBenchTime:
		return usagef("--time %v: want a time from %v to %v", b.opts.Time, minBenchTime, maxBenchTime)
	case b.opts.Goroutines < 1 || b.opts.Goroutines > maxGoroutines:
		return usagef("--goroutines %d: want a number from 1 to %d", b.opts.Goroutines, maxGoroutines)
	}
	return b.store.check()
}

func (b *bench) run() error {
	ctx, stop := untilSignal()
	defer stop()
	var file *os.File // opened early, so that an error is reported before the measurements
	if b.svg != "" {
		var err error
		if file, err = os.OpenFile(b.svg, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
			complain("cannot write the image: %v", err)
			return exit(exitOutput)
		}
		defer file.Close()
	}
	var stores [2]*ttlStore
	for i := range stores { // two connections, like those of two processes
		s, err := b.store.open(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		stores[i] = s
	}
	results, err := measure.Run(ctx, stores[0].Store, stores[1].Store, b.opts, b.progress)
	b.clear()
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%s, %v for each figure", b.title(), b.opts.Time)
	if file != nil {
		if err = file.Truncate(0); err == nil {
			_, err = file.WriteString(measure.Chart(title, results))
		}
		if err != nil {
			complain("cannot write the image: %v", err)
			return exit(exitOutput)
		}
	}
	return b.report(title, results)
}

// title returns the name of the store, without its password.
func (b *bench) title() string {
	u, err := store.ParseURL(b.store.url)
	if err != nil {
		return "this store"
	}
	return clean(u.String())
}

// progress shows on a terminal what is being measured.
func (b *bench) progress(step int, text string) {
	if tty.Fancy(os.Stderr) {
		left := time.Duration(measure.Steps-step+1) * b.opts.Time * 6 / 5
		fmt.Fprintf(os.Stderr, "\r%d of %d: %s, about %s left\x1b[K", step, measure.Steps, text, short(left))
	}
}

func (b *bench) clear() {
	if tty.Fancy(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}

func (b *bench) report(title string, results []measure.Result) error {
	if b.json {
		for _, r := range results {
			if err := outputJSON(r); err != nil {
				return err
			}
		}
		return nil
	}
	t := &table{head: []string{"MEASURED", "RESULT", "UNIT", "LIMIT", "RESULT/LIMIT"}}
	for _, r := range results {
		limit, share := "", ""
		if r.Limit > 0 {
			limit, share = measure.Number(r.Limit), fmt.Sprintf("%.0f %%", 100*r.Value/r.Limit)
		}
		t.add(r.Text, measure.Number(r.Value), r.Unit, limit, share)
	}
	lines := append([]string{title}, t.lines(0, tty.Colours(os.Stdout))...)
	return output(strings.Join(lines, "\n") + "\n")
}
