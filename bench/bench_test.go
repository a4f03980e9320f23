package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

func TestMain(m *testing.M) {
	if os.Getenv(takerVariable) != "" {
		takerMain()
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
	b := newBench(t.Context(), t, tiny)
	if err := must.Try(func() { b.run(regexp.MustCompile("")) }); err != nil {
		t.Fatal(b.id, err)
	}
	b.report.summarize()
	measured := make(map[string]bool)
	for _, row := range b.report.Rows {
		measured[row.ID] = true
		// The heap may shrink, and a goroutine of an earlier workload may end, while so few leases are held.
		shrinks := row.Unit == "bytes each" || row.Unit == "in all"
		if row.Median < 0 && !shrinks || len(row.Values) == 0 {
			t.Errorf("%s, %s: %v %s of %d rounds", row.Work, row.Who, row.Median, row.Unit, len(row.Values))
		}
	}
	for _, w := range workloads {
		if !measured[w.id] {
			t.Errorf("%s has no row", w.id)
		}
	}
	var table strings.Builder
	b.report.table(&table)
	t.Logf("\n%s", table.String())
	dir := t.TempDir()
	b.report.save(dir)
	if r := load(filepath.Join(dir, reportFile)); len(r.Rows) != len(b.report.Rows) {
		t.Errorf("%d rows can be read again, want %d", len(r.Rows), len(b.report.Rows))
	}
}

const (
	repository = ".."
	figures    = repository + "/docs/bench"
	renew      = "run: make figures"
)

func TestFiguresOfThePagesAreThoseOfTheRun(t *testing.T) {
	r := load(filepath.Join(figures, reportFile))
	want := r.updatePages(repository)
	all := strings.Join(slices.Collect(maps.Values(want)), "")
	for name, text := range r.charts() {
		want[filepath.Join(figures, name)] = text
		if !strings.Contains(all, "bench/"+name) {
			t.Errorf("no page shows the chart %s", name)
		}
	}
	for file, text := range want {
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%s has other figures than docs/bench/bench.json (%v); %s", file, err, renew)
		}
	}
}

// measured matches a number with a unit of measurement.
var measured = regexp.MustCompile(`\d[\d.,]* (ms|µs|%|bytes|pairs|commands|requests)|\d,\d{3}`)

func TestThePageAboutCostHasNoFigureOfAnotherRun(t *testing.T) {
	text := string(must.Get(os.ReadFile(filepath.Join(repository, "docs", "cost.md"))))
	if found := measured.FindAllString(marked.ReplaceAllString(text, ""), -1); len(found) > 0 {
		t.Errorf("%q: put figures between comments, so that they come from docs/bench/bench.json", found)
	}
}
