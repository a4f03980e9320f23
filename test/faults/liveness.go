package faults

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Violations returns those that a history shows by itself, all but S3 and L1. For bound see LongWaits.
func (h *History) Violations(bound time.Duration) []Violation {
	return slices.Concat(h.Overlaps(), h.ClosedGrants(), h.TokensOutOfOrder(), h.EarlyGrants(), h.LongWaits(bound), h.LostLeases())
}

const window = 2 * time.Second // over which rates are measured

// Recovery checks L1. It returns how long after the end of a fault the rate of grants was back at
// half of what it was before, or false if it was not until now.
func (h *History) Recovery(f Fault, before float64, now time.Duration) (time.Duration, bool) {
	for from := f.End; from+window/2 <= now; from += window / 8 {
		if 2*h.Rate(from, from+window/2) >= before {
			return from - f.End, true
		}
	}
	return 0, false
}

// Rate returns the number of grants per second in a time.
func (h *History) Rate(from, to time.Duration) float64 {
	n := 0
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hold := range h.holds {
		if from <= hold.Got && hold.Got < to {
			n++
		}
	}
	return float64(n) / (to - from).Seconds()
}

// LongWaits returns all violations of L2: nobody waits longer than bound after the name is free and all faults
// are over. The bound is a TTL and a heartbeat: a dead client's request may stand in front that long.
func (h *History) LongWaits(bound time.Duration) (all []Violation) {
	type span struct{ begin, end time.Duration }
	waits, obstacles := make(map[string][]Attempt), make(map[string][]span)
	h.mu.Lock()
	for _, a := range h.unknown {
		if a.Ended-a.Asked > bound {
			waits[a.Name] = append(waits[a.Name], a)
		}
	}
	faults := slices.Clone(h.faults)
	for _, hold := range h.holds {
		if hold.Got-hold.Asked > bound {
			waits[hold.Name] = append(waits[hold.Name], Attempt{Who: hold.Who, Name: hold.Name, Asked: hold.Asked, Ended: hold.Got})
		}
	}
	for _, hold := range h.holds {
		if waits[hold.Name] != nil {
			obstacles[hold.Name] = append(obstacles[hold.Name], span{hold.Got, freeBy(&hold, h.endOf(&hold))})
		}
	}
	h.mu.Unlock()
	for name, waits := range waits {
		spans := obstacles[name]
		for _, f := range faults {
			spans = append(spans, span{f.Begin, f.End})
		}
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
		for _, w := range waits {
			free, longest := w.Asked, time.Duration(0)
			for _, s := range spans {
				if s.begin < w.Ended {
					longest, free = max(longest, s.begin-free), max(free, s.end)
				}
			}
			if longest = max(longest, w.Ended-free); longest > bound {
				all = append(all, Violation{Invariant: "L2", Name: name, At: w.Ended, Text: fmt.Sprintf("wait: %s waited for %q from %v to %v, though nobody held it for %v of that time",
					w.Who, name, w.Asked, w.Ended, longest)})
			}
		}
	}
	return all
}

// freeBy returns the latest time at which a name is free: when Unlock returned or the grant has expired.
func freeBy(hold *Hold, ended time.Duration) time.Duration {
	over := min(ended, cmp.Or(hold.Lost, never), cmp.Or(hold.Unlock, never))
	switch {
	case hold.Freed > 0:
		return max(hold.Freed, hold.Closed)
	case over < never:
		return over + hold.TTL
	}
	return never
}

// LostLeases returns all violations of L3 and L4. A lease may be lost only to faults that last a third of its TTL
// in total, during the TTL before its end. Those that do not affect it, or spare all leases, are no excuse: L4.
func (h *History) LostLeases() (all []Violation) {
	h.mu.Lock()
	faults := slices.Clone(h.faults)
	h.mu.Unlock()
	for name, holds := range h.byName() {
		for _, hold := range holds {
			if hold.Lost == 0 || hold.Ended < never {
				continue
			}
			var sum time.Duration
			invariant, near := "L3", []string{}
			for _, f := range faults {
				begin, end := max(f.Begin, hold.Lost-2*hold.TTL), min(f.End, hold.Lost)
				if end < begin {
					continue
				}
				near = append(near, fmt.Sprintf("%s for %v", f.Kind, f.End-f.Begin))
				if f.Spares || f.Process != "" && f.Process != hold.process() || f.Name != "" && f.Name != name {
					invariant = "L4"
				} else {
					sum += end - begin
				}
			}
			if sum < hold.TTL/3 {
				all = append(all, Violation{Invariant: invariant, Name: name, At: hold.Lost, Text: fmt.Sprintf("lost: %s lost %q, token %d, TTL %v, at %v; faults in that time: %s",
					hold.Who, name, hold.Token, hold.TTL, hold.Lost, strings.Join(near, ", "))})
			}
		}
	}
	return all
}

// Weakness returns the fault whose documented weakness explains a violation, if there is one. No
// weakness explains that tokens fall or that a resource accepts an older token.
func (h *History) Weakness(v Violation) (f Fault, ok bool) {
	if v.Invariant == "S2" || v.Invariant == "S3" {
		return f, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.faults {
		if f.Weak != "" && f.Begin <= v.At && v.At <= f.End+f.After {
			return f, true
		}
	}
	return f, false
}

// Around describes the history of a name near a time, for the reader of a failure.
func (h *History) Around(name string, at, most time.Duration) string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	add := func(when time.Duration, format string, args ...any) {
		if when > 0 && when < never && when >= at-most && when <= at+most {
			lines = append(lines, line{when, fmt.Sprintf(format, args...)})
		}
	}
	h.mu.Lock()
	for _, f := range h.faults {
		add(f.Begin, "fault begins: %s %s%s", f.Kind, f.Process, f.Name)
		add(f.End, "fault ends: %s", f.Kind)
	}
	for _, hold := range h.holds {
		if hold.Name != name {
			continue
		}
		mode := "exclusive"
		if hold.Shared {
			mode = "shared"
		} else if hold.Permits > 0 {
			mode = fmt.Sprintf("%d of %d permits", hold.Permits, hold.Limit)
		}
		add(hold.Asked, "%s asks, later token %d", hold.Who, hold.Token)
		add(hold.Got, "%s got token %d, %s, TTL %v, ID %.8s", hold.Who, hold.Token, mode, hold.TTL, hold.ID)
		add(hold.Believed, "%s last saw that token %d is valid", hold.Who, hold.Token)
		if hold.Freed == 0 {
			add(hold.Deadline, "%s deadline of token %d", hold.Who, hold.Token)
		}
		add(hold.Unlock, "%s unlocks token %d", hold.Who, hold.Token)
		add(hold.Freed, "%s has unlocked token %d", hold.Who, hold.Token)
		add(hold.Lost, "%s saw that token %d is lost", hold.Who, hold.Token)
		if end := h.endOf(&hold); hold.Unlock == 0 || end < hold.Unlock {
			add(end, "%s token %d is ended on purpose", hold.Who, hold.Token)
		}
	}
	for _, a := range h.unknown {
		if a.Name == name {
			add(a.Asked, "%s asks, and gets no lease", a.Who)
			add(a.Ended, "%s got no lease", a.Who)
		}
	}
	h.mu.Unlock()
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&text, "  %+10.6fs %s\n", (l.at - at).Seconds(), l.text)
	}
	return text.String()
}
