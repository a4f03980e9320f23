package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Result is the record of one hunt.
type Result struct {
	Date    time.Time
	Store   string // or the other library
	Library string `json:",omitempty"` // the other library and its version; empty for Holdfast
	Server  string // and its version
	Seed    uint64
	Seconds float64
	Grants  int
	Calls   int                     // without a lease
	Rate    float64                 // grants per second before a fault, the median
	Faults  map[string]*FaultResult // by kind
	Paused  float64                 `json:",omitempty"` // seconds in which the whole machine stood still
	Waiting float64                 `json:",omitempty"` // requests per second of a waiter
	Residue string                  `json:",omitempty"` // what was left at the end
}

// A FaultResult is what was seen during faults of one kind and after them.
type FaultResult struct {
	Times       int
	Recovery    float64        // seconds until the rate was back at half, the longest
	Violations  map[string]int `json:",omitempty"` // by invariant
	Weaknesses  map[string]int `json:",omitempty"` // documented ones, by description
	NotPromised map[string]int `json:",omitempty"` // what another library does not promise, by invariant

	seeds []uint64 // of the runs with violations
}

// Matrix returns a table in Markdown: a line per kind of fault, a column per store or other library.
// Results of one of them are added up.
func Matrix(results []Result) string {
	if len(results) == 0 {
		return "No runs are recorded.\n"
	}
	cells := make(map[string]map[string]*FaultResult)
	stores := make(map[string]string) // and their versions
	for _, r := range results {
		stores[r.Store] = r.Server
		if r.Library != "" {
			stores[r.Store] = r.Library + " on " + r.Server
		}
		for kind, f := range r.Faults {
			if cells[kind] == nil {
				cells[kind] = make(map[string]*FaultResult)
			}
			c := cells[kind][r.Store]
			if c == nil {
				c = &FaultResult{Violations: make(map[string]int), Weaknesses: make(map[string]int), NotPromised: make(map[string]int)}
				cells[kind][r.Store] = c
			}
			c.Times, c.Recovery = c.Times+f.Times, max(c.Recovery, f.Recovery)
			add(c.Violations, f.Violations)
			add(c.Weaknesses, f.Weaknesses)
			add(c.NotPromised, f.NotPromised)
			if len(f.Violations) > 0 && !slices.Contains(c.seeds, r.Seed) {
				c.seeds = append(c.seeds, r.Seed)
			}
		}
	}
	names := slices.Sorted(maps.Keys(stores))
	var text strings.Builder
	fmt.Fprintf(&text, "| fault | %s |\n|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, kind := range slices.Sorted(maps.Keys(cells)) {
		fmt.Fprintf(&text, "| %s |", kind)
		for _, name := range names {
			fmt.Fprintf(&text, " %s |", cells[kind][name].cell())
		}
		text.WriteByte('\n')
	}
	text.WriteByte('\n')
	for _, name := range names {
		fmt.Fprintf(&text, "- %s: %s\n", name, stores[name])
	}
	return text.String()
}

func add(sums, more map[string]int) {
	for k, n := range more {
		sums[k] += n
	}
}

// cell describes the outcome in a few words.
func (f *FaultResult) cell() string {
	if f == nil {
		return "–"
	}
	list := []string{fmt.Sprintf("%d×, %.1f s", f.Times, f.Recovery)}
	for _, name := range slices.Sorted(maps.Keys(f.Violations)) {
		list = append(list, fmt.Sprintf("**%s: %d**", name, f.Violations[name]))
	}
	for _, seed := range f.seeds {
		list = append(list, fmt.Sprintf("seed %d", seed))
	}
	if len(f.Weaknesses) > 0 {
		list = append(list, "weakness shown")
	}
	if names := slices.Sorted(maps.Keys(f.NotPromised)); len(names) > 0 {
		list = append(list, "not promised: "+strings.Join(names, " "))
	}
	return strings.Join(list, ", ")
}
