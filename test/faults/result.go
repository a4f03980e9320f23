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
}

// Matrix returns a table in Markdown: a line per kind of fault, a column per store or other library.
func Matrix(results []Result) string {
	if len(results) == 0 {
		return "No runs are recorded.\n"
	}
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(a.Store, b.Store) })
	kinds := make(map[string]bool)
	var text, versions strings.Builder
	text.WriteString("| fault |")
	for _, r := range results {
		fmt.Fprintf(&text, " %s |", r.Store)
		if r.Library != "" {
			r.Server = r.Library + " on " + r.Server
		}
		fmt.Fprintf(&versions, "- %s: %s\n", r.Store, r.Server)
		for kind := range r.Faults {
			kinds[kind] = true
		}
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(results)) + "\n")
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&text, "| %s |", kind)
		for _, r := range results {
			fmt.Fprintf(&text, " %s |", r.cell(kind))
		}
		text.WriteByte('\n')
	}
	return text.String() + "\n" + versions.String()
}

// cell describes the outcome of a kind of fault in a few words.
func (r *Result) cell(kind string) string {
	f := r.Faults[kind]
	if f == nil {
		return "–"
	}
	list := []string{fmt.Sprintf("%d×, %.1f s", f.Times, f.Recovery)}
	for _, name := range slices.Sorted(maps.Keys(f.Violations)) {
		list = append(list, fmt.Sprintf("**%s: %d**", name, f.Violations[name]))
	}
	if len(f.Violations) > 0 {
		list = append(list, fmt.Sprintf("seed %d", r.Seed))
	}
	if len(f.Weaknesses) > 0 {
		list = append(list, "weakness shown")
	}
	if names := slices.Sorted(maps.Keys(f.NotPromised)); len(names) > 0 {
		list = append(list, "not promised: "+strings.Join(names, " "))
	}
	return strings.Join(list, ", ")
}
