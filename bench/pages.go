package main

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

// Figures in a page are between two comments. The first one has a pattern for Row.label, or "run":
//
//	<!-- bench: ^P7.*heap -->652<!-- end -->
//
// One matching row becomes a number, and several become a table.
var marked = regexp.MustCompile(`(?s)(<!-- bench: (.*?) -->)(.*?)(<!-- end -->)`)

// who returns the contender of a row, and the name of its figure, such as "p99 wait, ms".
func (r *Row) who() (who, figure string) {
	who, name, named := strings.Cut(r.Who, ": ")
	if named {
		return who, name + ", " + r.Unit
	}
	return who, r.Unit
}

// label returns the text that patterns select rows by, such as "P4, 16 clients, one name: p99 wait, ms".
func (r *Row) label() string {
	_, figure := r.who()
	return r.ID + ", " + r.Work + ": " + figure
}

// A pivot is a table of figures: a row for each workload, and a column for each contender.
type pivot struct {
	figure     string // of all rows, if they are of one kind
	rows, whos []string
	cells      map[string]map[string]*Row // by row and contender
}

// pivot selects rows. Holdfast comes first.
func (r *Report) pivot(pattern string) pivot {
	p := pivot{cells: make(map[string]map[string]*Row)}
	selected := regexp.MustCompile(pattern)
	found := slices.DeleteFunc(slices.Clone(r.Rows), func(row *Row) bool { return !selected.MatchString(row.label()) })
	figures := make(map[string]bool)
	for _, row := range found {
		_, p.figure = row.who()
		figures[p.figure] = true
	}
	for _, row := range found {
		who, figure := row.who()
		label := row.Work
		if len(figures) > 1 {
			p.figure, label = "", label+": "+figure
		}
		if !slices.Contains(p.rows, label) {
			p.rows = append(p.rows, label)
			p.cells[label] = make(map[string]*Row)
		}
		if !slices.Contains(p.whos, who) {
			p.whos = append(p.whos, who)
		}
		p.cells[label][who] = row
	}
	if i := slices.Index(p.whos, us); i > 0 {
		p.whos = slices.Insert(slices.Delete(p.whos, i, i+1), 0, us)
	}
	return p
}

// cell returns a figure for a page. A ratio has the lowest and the highest round too.
func (r *Row) cell() string {
	switch {
	case r == nil:
		return ""
	case strings.Contains(r.Who, " / ") && r.Unit == "×" && len(r.Values) > 1 && !strings.Contains(r.Who, ":"):
		return fmt.Sprintf("%s (%s to %s)", rounded(r.Median), rounded(r.Low), rounded(r.High))
	}
	return rounded(r.Median)
}

// section returns the figures for a pattern: a number, a table in Markdown, or "" if there are none.
func (r *Report) section(pattern string) string {
	if pattern == "run" {
		text := fmt.Sprintf("%s, on a machine (%s) with %d cores, which also ran the servers; %d rounds of %s; %s",
			r.Begun.Format("2006-01-02 15:04 UTC"), r.CPU, r.Cores, r.Rounds, r.Round, r.Go)
		for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
			text += ", " + strings.TrimPrefix(name, "github.com/") + " " + r.Versions[name]
		}
		return text
	}
	p := r.pivot(pattern)
	switch {
	case len(p.rows) == 0:
		return ""
	case len(p.rows) == 1 && len(p.whos) == 1:
		return p.cells[p.rows[0]][p.whos[0]].cell()
	}
	table := "\n\n| " + strings.Join(append([]string{p.figure}, p.whos...), " | ") + " |\n|---|" + strings.Repeat("--:|", len(p.whos)) + "\n"
	for _, label := range p.rows {
		table += "| " + label
		for _, who := range p.whos {
			table += " | " + p.cells[label][who].cell()
		}
		table += " |\n"
	}
	return table + "\n"
}

// updatePages returns the pages of a repository by path, with the figures of a run.
func (r *Report) updatePages(root string) map[string]string {
	readmes := must.Get(filepath.Glob(filepath.Join(root, "README*.md")))
	pages := make(map[string]string)
	for _, file := range append(readmes, must.Get(filepath.Glob(filepath.Join(root, "docs", "*.md")))...) {
		pages[file] = marked.ReplaceAllStringFunc(string(must.Get(os.ReadFile(file))), func(s string) string {
			m := marked.FindStringSubmatch(s)
			text := r.section(m[2])
			if text == "" {
				must.Fail("%s: the run has no figures for %q: measure everything that the pages show", file, m[2])
			}
			return m[1] + text + m[4]
		})
	}
	return pages
}

// A chart has horizontal bars, in groups that each have their own scale. A group is a row of the
// pivot of a pattern; its title is the label of the row, unless there is another one.
type chart struct {
	file, title string
	groups      [][2]string // pattern and title
}

var drawn = []chart{
	{"overview.svg", "Holdfast and other lock libraries on one Redis server", [][2]string{
		{`^P1,.*: pairs/s`, "64 goroutines, a name each: pairs per second"},
		{`^P3,.*: pairs/s`, "64 goroutines of one process, one name: pairs per second"},
		// A p99 counts waits and hides clients that get no turn: if the client that releases a lock takes
		// it again at once, almost all waits are short. So the overview shows the turns.
		{`^P4, 64 clients.*: busiest`, "64 clients, one name: turns of the busiest for each turn of the least busy (shorter is better)"},
		{`^P5,.*: p50, µs`, "hand-off between processes: p50, µs (shorter is better)"},
	}},
	{"handoff.svg", "From the unlock in one process to the grant in another: p50, µs (shorter is better)", [][2]string{
		{`^P5,.*: p50, µs`, "Redis, hand-off between processes"},
		{`^P(9|10).*hand-off between processes: p50, µs`, ""},
	}},
}

func (r *Report) charts() map[string]string {
	files := make(map[string]string)
	for _, c := range drawn {
		files[c.file] = r.svg(c)
	}
	return files
}

const (
	chartWidth = 760
	barHeight  = 18
	barLeft    = 150
	barMost    = 460 // length of the longest bar
)

// chartStyle follows the colour scheme of the reader.
const chartStyle = `<style>
svg { font: 13px system-ui, sans-serif; fill: #1f2328 }
.back { fill: #ffffff } .us { fill: #1f6feb } .peer { fill: #bf8700 } .raw { fill: #8c959f }
.title { font-size: 16px } .group { font-weight: 600 } .note { font-size: 11px; fill: #59636e }
@media (prefers-color-scheme: dark) {
svg { fill: #e6edf3 }
.back { fill: #0d1117 } .us { fill: #58a6ff } .peer { fill: #d29922 } .raw { fill: #6e7681 }
.note { fill: #9198a1 }
}
</style>
`

func (r *Report) svg(c chart) string {
	var b strings.Builder
	text := func(x, y int, attributes, s string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d"%s>%s</text>`+"\n", x, y, attributes, html.EscapeString(s))
	}
	kinds := map[string]string{us: "us", raw: "raw", roundTrip: "raw"}
	y := 28
	text(12, y, ` class="title"`, c.title)
	for _, g := range c.groups {
		p := r.pivot(g[0])
		for _, label := range p.rows {
			most := 1e-9
			for _, row := range p.cells[label] {
				most = max(most, row.Median)
			}
			y += 28
			text(12, y, ` class="group"`, cmp.Or(g[1], label))
			for _, who := range p.whos {
				row := p.cells[label][who]
				if row == nil {
					continue
				}
				y += 6
				width := max(1, int(barMost*row.Median/most))
				text(barLeft-8, y+barHeight-5, ` text-anchor="end"`, who)
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" class="%s"/>`+"\n",
					barLeft, y, width, barHeight, cmp.Or(kinds[who], "peer"))
				text(barLeft+width+6, y+barHeight-5, "", rounded(row.Median))
				y += barHeight
			}
		}
	}
	y += 28
	text(12, y, ` class="note"`, fmt.Sprintf("%s, %s, %d cores, Redis %s; medians of %d rounds, interleaved", r.Begun.Format("2006-01-02"), r.CPU, r.Cores, r.Versions["Redis"], r.Rounds))
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="%[3]s">
%[4]s<rect class="back" width="100%%" height="100%%" rx="6"/>
%[5]s</svg>
`, chartWidth, y+14, html.EscapeString(c.title), chartStyle, b.String())
}
