package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	repository = ".."
	figures    = repository + "/docs/bench"
	renew      = "run: make figures"
)

// measured matches a number with a unit of measurement.
var measured = regexp.MustCompile(`\d[\d.,]* (ms|µs|%|bytes|pairs|commands|requests)|\d,\d{3}`)

func TestFiguresOfThePagesAreThoseOfTheRun(t *testing.T) {
	r, err := load(filepath.Join(figures, reportFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range r.charts() {
		if got, err := os.ReadFile(filepath.Join(figures, name)); err != nil || string(got) != want {
			t.Errorf("docs/bench/%s is not the chart of bench.json (%v); %s", name, err, renew)
		}
	}
	used := make(map[string]bool)
	for _, pattern := range []string{"README*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range marked.FindAllStringSubmatch(string(text), -1) {
				used[m[2]] = true
			}
			updated, err := r.update(string(text))
			if err != nil {
				t.Errorf("%s: %v", file, err)
			} else if updated != string(text) {
				t.Errorf("%s has other figures than docs/bench/bench.json; %s", file, renew)
			}
			for name := range r.charts() {
				if strings.Contains(string(text), "bench/"+name) {
					used[name] = true
				}
			}
		}
	}
	for name := range sections {
		if !used[name] {
			t.Errorf("no page shows the section %q", name)
		}
	}
	for name := range r.charts() {
		if !used[name] {
			t.Errorf("no page shows the chart %s", name)
		}
	}
}

func TestThePageAboutCostHasNoFigureOfAnotherRun(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "cost.md"))
	if err != nil {
		t.Fatal(err)
	}
	if found := measured.FindAllString(marked.ReplaceAllString(string(text), ""), -1); len(found) > 0 {
		t.Errorf("%q: put figures between comments, so that they come from docs/bench/bench.json", found)
	}
}

func TestAPageWithAnUnknownFigureIsRefused(t *testing.T) {
	r := &Report{Rows: []Row{{ID: "P7", Work: "100000 leases held for 45s", Who: us + ": heap", Unit: "bytes each", Median: 652.4}}}
	if got, err := r.update("It takes <!-- bench: held-bytes -->1<!-- end --> bytes."); err != nil || got != "It takes <!-- bench: held-bytes -->652<!-- end --> bytes." {
		t.Errorf("%q, %v", got, err)
	}
	for _, page := range []string{"<!-- bench: nonsense -->1<!-- end -->", "<!-- bench: held-cpu -->1<!-- end -->"} {
		if _, err := r.update(page); err == nil {
			t.Errorf("%s is accepted", page)
		}
	}
}

func TestRatiosAbovePlainCommandsAreExplained(t *testing.T) {
	for _, c := range []struct {
		row  Row
		want bool
	}{
		{Row{Who: us + " / " + raw, Unit: "×", Median: 1.72}, true},
		{Row{Who: us + " / " + bareStatements, Unit: "×", Median: 1.01}, true},
		{Row{Who: us + " / " + raw, Unit: "×", Median: 0.9}, false},
		{Row{Who: us + " / redsync (best peer)", Unit: "×", Median: 45}, false},
	} {
		var out strings.Builder
		if err := (&Report{Rows: []Row{c.row}}).table(&out); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), aboveLimitNote); got != c.want {
			t.Errorf("%s of %v is explained: %v, want %v", c.row.Who, c.row.Median, got, c.want)
		}
	}
}
