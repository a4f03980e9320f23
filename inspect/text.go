package inspect

import (
	"fmt"
	"html/template"
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

func clock(t time.Time) string { return t.Format("15:04:05") }

// firstHolders returns the first n holders of a list.
func firstHolders(n int, list []holdfast.Holder) []holdfast.Holder { return list[:min(n, len(list))] }

// firstWaiters returns the first n waiters of a list.
func firstWaiters(n int, list []holdfast.Waiter) []holdfast.Waiter { return list[:min(n, len(list))] }

// Percent returns how full the bar of a lease is. A listing does not contain the TTL, so the bar
// is full at the longest remaining time that was seen.
func (p page) Percent(h holdfast.Holder) int {
	full := max(p.seen[h.ID].full, h.Left, 1)
	return int(100 * (float64(h.Left) / float64(full)))
}

// Renewed returns the time at which a renewal of a lease was last seen. It is zero if none was
// seen.
func (p page) Renewed(h holdfast.Holder) time.Time { return p.seen[h.ID].renewed }

// Newest returns the events of a lock, the newest first.
func (p page) Newest() []event {
	events := slices.Clone(p.Record.Events)
	slices.Reverse(events)
	return events
}

// Since returns the time at which a holder or waiter of that age began, by the clock of this
// host.
func (p page) Since(age time.Duration) time.Time { return p.At.Add(-age) }

// iso formats a time for the attribute datetime.
func iso(t time.Time) string { return t.Format(time.RFC3339) }

// date formats a time for people, with the date.
func date(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }

// weight describes in a few words how a lock is held.
func weight(mode holdfast.Mode, weight, limit int) string {
	if mode == holdfast.ModePermits {
		return fmt.Sprintf("%d of %d permits", weight, limit)
	}
	return mode.String()
}

// plot draws times as bars, the newest on the right.
func plot(times []time.Duration, title string) template.HTML {
	const width, height, bar = 400, 60, 4
	if len(times) == 0 {
		return ""
	}
	most := max(slices.Max(times), 1)
	var b strings.Builder
	label := template.HTMLEscapeString(fmt.Sprintf("%s: %d seen, longest %s, last %s", title, len(times), short(most), short(times[len(times)-1])))
	fmt.Fprintf(&b, `<figure><svg class="plot" viewBox="0 0 %d %d" role="img" aria-label="%s">`, width, height, label)
	for i, d := range times {
		h := max(1, int(int64(height)*int64(d)/int64(most)))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d"/>`, width-(len(times)-i)*bar, height-h, bar-1, h)
	}
	fmt.Fprintf(&b, `</svg><figcaption>%s</figcaption></figure>`, label)
	return template.HTML(b.String())
}
