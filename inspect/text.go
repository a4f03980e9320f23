package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// short rounds a duration to the precision that a person needs.
func short(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	}
	return fmt.Sprintf("%d µs", d/time.Microsecond)
}

// whole formats the age of a list, in whole seconds. The script of the page counts on in that form.
func whole(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return short(d)
}

func clock(t time.Time) string { return t.Format("15:04:05") }

func first[T any](n int, list []T) []T { return list[:min(n, len(list))] }

// Percent returns how full the bar of a lease is. A listing does not contain the TTL, so the bar
// is full at the longest remaining time that was seen.
func (p page) Percent(h holdfast.Holder) int {
	full := max(p.seen[h.ID].full, h.Left, 1)
	return int(100 * (float64(h.Left) / float64(full)))
}

// Renewed returns when a renewal of a lease was last seen, or zero.
func (p page) Renewed(h holdfast.Holder) time.Time { return p.seen[h.ID].renewed }

// Newest returns the events of the lock, the newest first.
func (p page) Newest() []event {
	events := slices.Clone(p.Record.Events)
	slices.Reverse(events)
	return events
}

// Since returns when a holder or waiter of that age began, by the clock of this host.
func (p page) Since(age time.Duration) time.Time { return p.At.Add(-age) }

func iso(t time.Time) string { return t.Format(time.RFC3339) }

func date(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }

func weight(mode holdfast.Mode, weight, limit int) string {
	if mode == holdfast.ModePermits {
		return fmt.Sprintf("%d of %d permits", weight, limit)
	}
	return mode.String()
}

// A spark is a line of the numbers of waiters in the last listings.
type spark struct{ Text, Points string }

// Spark returns the line of a lock, or nil if none of its waiters was seen.
func (p page) Spark(name string) *spark {
	const width, height, lowest = 60, 16, 4 // a line of lower numbers does not use the whole height
	counts := p.counts[name]
	if len(counts) == 0 {
		return nil
	}
	most := slices.Max(counts)
	var points strings.Builder
	for i, n := range append([]int{counts[0]}, counts...) { // each is a step, so that a single one is a line too
		x := width - (len(counts)-i)*width/maxCounts
		fmt.Fprintf(&points, "%d,%.1f ", x, height-1-float64(n*(height-2))/float64(max(most, lowest)))
	}
	return &spark{fmt.Sprintf("waiting: %d now, at most %d in the last %d listings", counts[len(counts)-1], most, len(counts)), points.String()}
}
