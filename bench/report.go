package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

// A Report is the result of a run.
type Report struct {
	Begun    time.Time         `json:"begun"`
	Go       string            `json:"go"`
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	Versions map[string]string `json:"versions"` // of servers and peers
	Rounds   int               `json:"rounds"`
	Round    string            `json:"round"` // duration of a turn
	Rows     []*Row            `json:"rows"`
}

// A Row is one figure of a contender, or a ratio.
type Row struct {
	ID     string    `json:"id"`   // of the workload, such as P1
	Work   string    `json:"work"` // such as "64 goroutines, own names"
	Who    string    `json:"who"`  // such as "holdfast", "holdfast: p99 wait" or "holdfast / raw"
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"` // by round
	Median float64   `json:"median"`
	Low    float64   `json:"low"`
	High   float64   `json:"high"`
}

func newReport(c config) Report {
	return Report{
		Begun: time.Now().UTC().Truncate(time.Second), Go: runtime.Version(), CPU: cpu(), Cores: runtime.GOMAXPROCS(0),
		Versions: versions(), Rounds: c.rounds, Round: c.time.String(),
	}
}

// find returns a row, or an empty one.
func (r *Report) find(id, work, who string) *Row {
	for _, row := range r.Rows {
		if row.ID == id && row.Work == work && row.Who == who {
			return row
		}
	}
	return new(Row)
}

func (r *Report) summarize() {
	for _, row := range r.Rows {
		row.Median, row.Low, row.High = median(row.Values), quantile(row.Values, 0), quantile(row.Values, 1)
	}
}

func (r *Report) table(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "#\twork\twho\tmedian\tspread\tunit")
	for _, row := range r.Rows {
		spread := "–"
		if len(row.Values) > 1 {
			spread = number(row.Low) + " … " + number(row.High)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", row.ID, row.Work, row.Who, number(row.Median), spread, row.Unit)
	}
	fmt.Fprint(w, `
Plain commands (raw, bare) are one request for each call. Holdfast sends concurrent calls in one request,
so its ratio to them can be above 1. With a single goroutine, such a ratio is noise.
`)
	w.Flush()
}

const reportFile = "bench.json"

func (r *Report) save(dir string) {
	must.OK(os.MkdirAll(dir, 0o755))
	files := r.charts()
	files[reportFile] = string(must.Get(json.MarshalIndent(r, "", "  "))) + "\n"
	for name, text := range files {
		must.OK(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

func load(path string) *Report {
	r := new(Report)
	must.OK(json.Unmarshal(must.Get(os.ReadFile(path)), r))
	return r
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// quantile returns the smallest value such that the fraction q of all values is not above it.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); q == 0.5 && n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// rounded formats a figure for a page: with three significant digits, even if it is large.
func rounded(n float64) string {
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
	if digits > 0 {
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 { // 1234567 is 1,234,567
		text = text[:i] + "," + text[i:]
	}
	return text
}

// versions returns the versions of the installed servers, and of the peers in this program.
func versions() map[string]string {
	found := make(map[string]string)
	postgres, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	number := regexp.MustCompile(`\d+\.\d+(\.\d+)?`)
	for name, commands := range map[string][]string{
		"Redis":      {"redis-server"},
		"etcd":       {filepath.Join(".bin", "etcd"), "etcd"},
		"MariaDB":    {"mariadbd"},
		"PostgreSQL": append(postgres, "postgres"),
	} {
		for _, command := range commands {
			if out, err := exec.Command(command, "--version").Output(); err == nil {
				found[name] = number.FindString(string(out))
				break
			}
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis",
				"go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk", "modernc.org/sqlite":
				found[m.Path] = m.Version
			}
		}
	}
	return found
}

func cpu() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	if name := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(info); name != nil {
		return string(name[1])
	}
	return runtime.GOARCH
}
