package inspect

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// short rounds a duration to what a person wants to read.
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

// percent is how full the bar of a lease is. A lease does not tell its TTL, so the bar is full at the
// longest time that is left between two renewals of the default TTL.
func percent(left time.Duration) int {
	return int(100 * min(left, holdfast.DefaultTTL) / holdfast.DefaultTTL)
}

// weight is how a lock is held, in a word.
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
