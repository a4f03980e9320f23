package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A Report is the result of a run.
type Report struct {
	Begun    time.Time         `json:"begun"`
	Go       string            `json:"go"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Versions map[string]string `json:"versions"` // of servers and peers
	Rounds   int               `json:"rounds"`
	Round    string            `json:"round"` // duration of a turn of one candidate
	Rows     []Row             `json:"rows"`
}

// A Row is one figure of a peer, or a ratio.
type Row struct {
	ID     string    `json:"id"`   // of the target, such as P1
	Work   string    `json:"work"` // such as "64 goroutines, own names"
	Who    string    `json:"who"`  // such as "holdfast" or "holdfast / raw"
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"` // by round
	Median float64   `json:"median"`
	Low    float64   `json:"low"`
	High   float64   `json:"high"`
	Target string    `json:"target,omitempty"`
	Met    *bool     `json:"met,omitempty"` // nil without a target
}

// A target is the lower or upper limit of a figure.
type target struct {
	limit   float64
	atMost  bool
	inWords string
}

func atLeast(limit float64) *target {
	return &target{limit: limit, inWords: "≥ " + number(limit)}
}

func atMost(limit float64) *target {
	return &target{limit: limit, atMost: true, inWords: "≤ " + number(limit)}
}

func (t *target) met(value float64) bool {
	if t.atMost {
		return value <= t.limit
	}
	return value >= t.limit
}

// add records and prints a figure. The target may be nil.
func (b *bench) add(work, who, unit string, values []float64, t *target) {
	if len(values) == 0 {
		return
	}
	row := Row{
		ID: b.id, Work: work, Who: who, Unit: unit, Values: values,
		Median: median(values), Low: quantile(values, 0), High: quantile(values, 1),
	}
	if t != nil {
		met := t.met(row.Median)
		row.Target, row.Met = t.inWords, &met
	}
	b.report.Rows = append(b.report.Rows, row)
}

func (r *Row) verdict() string {
	switch {
	case r.Met == nil:
		return "–"
	case *r.Met:
		return "met"
	}
	return "MISSED"
}

// table writes the rows. Rows of Holdfast and ratios can have a target; rows of peers are for
// comparison.
func (r *Report) table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "#\twork\twho\tmedian\tspread\tunit\ttarget\t")
	for i := range r.Rows {
		row := &r.Rows[i]
		spread := "–"
		if len(row.Values) > 1 {
			spread = number(row.Low) + " … " + number(row.High)
		}
		want := row.Target
		if want == "" {
			want = "–"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.ID, row.Work, row.Who, number(row.Median), spread, row.Unit, want, row.verdict())
	}
	if err := w.Flush(); err != nil || !slices.ContainsFunc(r.Rows, Row.aboveLimit) {
		return err
	}
	_, err := fmt.Fprintln(out, aboveLimitNote)
	return err
}

// aboveLimitNote explains a ratio to plain commands that is above 1.
const aboveLimitNote = `
A ratio above 1 to plain commands (raw, bare): they make one request for each call, and Holdfast sends
concurrent calls in one request. With a single goroutine, such a ratio is noise.`

// aboveLimit reports whether a row says that Holdfast is faster than plain commands.
func (r Row) aboveLimit() bool {
	_, than, isRatio := strings.Cut(r.Who, " / ")
	return isRatio && r.Unit == "×" && r.Median > 1 && (than == raw || than == bareQueue || than == bareStatements)
}

// figure formats a figure for a page: with three significant digits, even if it is large.
func figure(n float64) string {
	if n == 0 {
		return "0"
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(n)))-2)
	return number(math.Round(n/unit) * unit)
}

// number formats a figure with at least three significant digits.
func number(n float64) string {
	if n == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(n)))))
	text := fmt.Sprintf("%.*f", digits, n)
	for digits > 0 && text[len(text)-1] == '0' {
		text, digits = text[:len(text)-1], digits-1
	}
	if text[len(text)-1] == '.' {
		text = text[:len(text)-1]
	}
	if digits == 0 { // 1234567 is 1,234,567
		begin := 0
		if n < 0 {
			begin = 1
		}
		for i := len(text) - 3; i > begin; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
	}
	return text
}

const reportFile = "bench.json"

// save writes the report as JSON and as charts into a folder.
func (r *Report) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	files := r.charts()
	files[reportFile] = string(data) + "\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// load reads a report.
func load(path string) (*Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(Report)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func newReport(c config) Report {
	return Report{
		Begun: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), CPU: cpu(), Cores: runtime.GOMAXPROCS(0),
		Versions: versions(), Rounds: c.rounds, Round: c.time.String(),
	}
}
