package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(childMain(role))
	}
	os.Exit(m.Run())
}

// tiny is a configuration that only shows that every workload works. The figures are not
// checked: no test depends on the speed of the machine, or on peers, some of which hang at times.
var tiny = config{
	who:    []string{us, raw, bareQueue, bareStatements, "concurrency", "pg_advisory_lock", "GET_LOCK"},
	rounds: 1, time: 20 * time.Millisecond,
	goroutines: 4, clients: []int{2, 4}, handoffs: 2,
	processes: 2, waiters: 3, window: 200 * time.Millisecond,
	leases: 100, hold: 200 * time.Millisecond,
	few: 10, names: 2000, queues: []int{1, 2, 4},
}

func TestEveryWorkloadWorks(t *testing.T) {
	b, err := newBench(t, tiny)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.run(t.Context(), regexp.MustCompile("")); err != nil {
		t.Fatal(err)
	}
	measured := make(map[string]bool)
	for _, row := range b.report.Rows {
		measured[row.ID] = true
		if row.Median < 0 {
			t.Errorf("%s, %s: %v %s", row.Work, row.Who, row.Median, row.Unit)
		}
	}
	for _, w := range workloads {
		if !measured[w.id] {
			t.Errorf("%s has no row", w.id)
		}
	}
	var table strings.Builder
	if err := b.report.table(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
	dir := t.TempDir()
	if err := b.report.save(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{reportFile, "overview.svg", "throughput.svg", "wait.svg", "handoff.svg", "waiting.svg", "growth.svg"} {
		if data, err := os.ReadFile(dir + "/" + name); err != nil || len(data) < 500 { // the charts are nearly empty, because the workloads have other names here
			t.Errorf("%s has %d bytes, %v", name, len(data), err)
		}
	}
	if r, err := load(dir + "/" + reportFile); err != nil || len(r.Rows) != len(b.report.Rows) {
		t.Errorf("the report cannot be read again: %v", err)
	}
}

func TestNumbersAreShort(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0", 1: "1", 0.5: "0.5", 1.8: "1.8", 0.0123: "0.0123", 12.345: "12.3", 999: "999",
		1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", 100: "100", 10: "10",
	} {
		if got := number(n); got != want {
			t.Errorf("%v is written as %s instead of %s", n, got, want)
		}
	}
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.31649: "0.316", 2.5: "2.5", 99.96: "100", 111.884: "112", 52799: "52,800", 1234567: "1,230,000"} {
		if got := figure(n); got != want {
			t.Errorf("%v is written as %s instead of %s", n, got, want)
		}
	}
}

func TestAHistogramIsRightToASixteenth(t *testing.T) {
	for d := time.Nanosecond; d < time.Hour; d = d*3 + 1 {
		var h histogram
		h.note(d)
		if got := h.quantile(0.99); got < d || got > d+d/16+1 {
			t.Errorf("%v is counted as %v", d, got)
		}
	}
}
