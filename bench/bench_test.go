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
	b.run(regexp.MustCompile(""))
	b.report.summarize()
	measured := make(map[string]bool)
	for _, row := range b.report.Rows {
		measured[row.ID] = true
		// The heap may shrink while so few leases are held.
		if row.Median < 0 && row.Unit != "bytes each" || len(row.Values) == 0 {
			t.Errorf("%s, %s: %v %s of %d rounds", row.Work, row.Who, row.Median, row.Unit, len(row.Values))
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
	if r, err := load(filepath.Join(dir, reportFile)); err != nil || len(r.Rows) != len(b.report.Rows) {
		t.Errorf("the report cannot be read again: %v", err)
	}
}

func TestNumbersAreShort(t *testing.T) {
	for n, want := range map[float64][2]string{
		0: {"0", "0"}, 0.0123: {"0.0123", "0.0123"}, 0.31649: {"0.316", "0.316"}, 1.8: {"1.8", "1.8"}, 12.345: {"12.3", "12.3"}, 10: {"10", "10"},
		100: {"100", "100"}, 1000: {"1,000", "1,000"}, 52799: {"52,799", "52,800"}, 1234567: {"1,234,567", "1,230,000"}, -1234: {"-1,234", "-1,230"},
	} {
		if got := [2]string{number(n), rounded(n)}; got != want {
			t.Errorf("%v is written as %s, got %s", n, want, got)
		}
	}
}

const (
	repository = ".."
	figures    = repository + "/docs/bench"
	renew      = "run: make figures"
)

func TestFiguresOfThePagesAreThoseOfTheRun(t *testing.T) {
	r, err := load(filepath.Join(figures, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.updatePages(repository)
	if err != nil {
		t.Fatal(err)
	}
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
	text, err := os.ReadFile(filepath.Join(repository, "docs", "cost.md"))
	if err != nil {
		t.Fatal(err)
	}
	if found := measured.FindAllString(marked.ReplaceAllString(string(text), ""), -1); len(found) > 0 {
		t.Errorf("%q: put figures between comments, so that they come from docs/bench/bench.json", found)
	}
}

func TestFiguresOfAPattern(t *testing.T) {
	r := &Report{Rows: []Row{
		{ID: "P1", Work: "own", Who: raw, Unit: pairs, Median: 2000},
		{ID: "P1", Work: "own", Who: us, Unit: pairs, Median: 1000},
		{ID: "P1", Work: "own", Who: us + " / " + raw, Unit: "×", Median: 0.5},
		{ID: "P3", Work: "hot", Who: us, Unit: pairs, Median: 30_000},
		{ID: "P3", Work: "hot", Who: us + ": p99 wait", Unit: "ms", Median: 0.25},
		{ID: "P7", Work: "100000 leases", Who: us + ": heap", Unit: "bytes each", Median: 652.4},
	}}
	for pattern, want := range map[string]string{
		"^P7.*heap":   "652",
		"pairs/s":     "\n\n| pairs/s | holdfast | raw |\n|---|--:|--:|\n| own | 1,000 | 2,000 |\n| hot | 30,000 |  |\n\n",
		"^P3":         "\n\n|  | holdfast |\n|---|--:|\n| hot: pairs/s | 30,000 |\n| hot: p99 wait, ms | 0.25 |\n\n",
		"^P1.*: ×":    "0.5",
		"^P2|nothing": "",
	} {
		page := "It is <!-- bench: " + pattern + " -->1<!-- end -->."
		got, err := r.update(page)
		if filled := "It is <!-- bench: " + pattern + " -->" + want + "<!-- end -->."; want != "" && (got != filled || err != nil) {
			t.Errorf("%s: got %q, %v", pattern, got, err)
		}
		if want == "" && err == nil {
			t.Errorf("a page with %q is accepted", pattern)
		}
	}
}
