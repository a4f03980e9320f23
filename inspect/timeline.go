package inspect

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/internal/core/printable"
)

const (
	maxBars   = 10              // holders and waiters on the timeline, each
	minWindow = 5 * time.Second // that the timeline covers
	rowHeight = 34              // pixels: a line of text with the bar below it
	longLabel = 28              // characters of an owner that stand above its bar
)

// A timeline is a drawing of the holds of a lock. Horizontal positions are in percent of its width,
// so that the drawing fits all screens and its text keeps its size. Vertical ones are in pixels.
type timeline struct {
	Bars         []bar
	Gaps, Ticks  []stretch
	Axis, Height int
}

// A bar is one holder or waiter: the stretches in which it waited for the lock and held it.
type bar struct {
	Label, Text, Now string
	LabelY, Y        int
	Wait, Hold       stretch
}

type stretch struct{ X, Width, Text string }

// Timeline draws the last holds that were seen to end, the holders and the first waiters, if any.
func (p page) Timeline() *timeline {
	rows := slices.Clone(p.Record.Holds)
	for _, h := range first(maxBars, p.Lock.Holders) {
		from := p.Since(h.Age)
		rows = append(rows, hold{h.Owner, h.Token, from.Add(-p.seen[h.ID].waited), from, p.At, h.State.String()})
	}
	for _, w := range first(maxBars, p.Lock.Waiters) {
		rows = append(rows, hold{w.Owner, 0, p.Since(w.Age), p.At, p.At, "waiting"})
	}
	if len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b hold) int { return a.From.Compare(b.From) })

	window := windowOf(rows, p.At)
	rows = slices.DeleteFunc(rows, func(h hold) bool { return p.At.Sub(h.To) > window })
	place := func(from, to time.Time, text string) stretch {
		percent := func(t time.Time) float64 { return 100 - 100*float64(min(p.At.Sub(t), window))/float64(window) }
		return stretch{fmt.Sprintf("%.2f", percent(from)), fmt.Sprintf("%.2f", max(0, percent(to)-percent(from))), text}
	}
	d := &timeline{Axis: rowHeight * len(rows), Height: rowHeight*len(rows) + 20}
	free := rows[0].From // nobody was seen to hold the lock from here on
	for i, h := range rows {
		if h.From.Sub(free) > window/200 {
			d.Gaps = append(d.Gaps, place(free, h.From, short(h.From.Sub(free))))
		}
		if free.Before(h.To) {
			free = h.To
		}
		d.Bars = append(d.Bars, bar{
			Label: h.label(), Text: h.text(), Now: h.Now, LabelY: i*rowHeight + 13, Y: i*rowHeight + 18,
			Wait: place(h.Came, h.From, ""), Hold: place(h.From, h.To, ""),
		})
	}
	if p.At.Sub(free) > window/200 {
		d.Gaps = append(d.Gaps, place(free, p.At, short(p.At.Sub(free))))
	}
	for quarter := range 3 { // the label at the end is "now"
		t := p.At.Add(-window * time.Duration(3-quarter) / 4)
		d.Ticks = append(d.Ticks, place(t, t, t.Format(layoutOf(window))))
	}
	return d
}

// windowOf returns how much time before now the rows of a timeline need. A few rows that began long
// before the others are cut off, because the others would be too narrow to see.
func windowOf(rows []hold, now time.Time) time.Duration {
	var ages []time.Duration
	for _, h := range rows {
		ages = append(ages, now.Sub(h.Came))
	}
	slices.Sort(ages)
	return max(minWindow, min(ages[len(ages)-1], 4*ages[(len(ages)-1)/2]))
}

func layoutOf(window time.Duration) string {
	switch {
	case window < time.Hour:
		return "15:04:05"
	case window < 24*time.Hour:
		return "15:04"
	}
	return "Jan 2 15:04"
}

// doing says what somebody does or did, before a duration.
var doing = map[string]string{
	"": "held for", "held": "holds for", "done": "closed (done) for", "cooling": "closed (minimum hold) for", "waiting": "waits for",
}

func (h hold) label() string {
	owner := []rune(printable.Escape(h.Owner))
	if len(owner) > longLabel {
		owner = append(owner[:longLabel-1], '…')
	}
	if h.Now == "waiting" {
		return fmt.Sprintf("%s %s %s", string(owner), doing[h.Now], short(h.From.Sub(h.Came)))
	}
	return fmt.Sprintf("%s %s %s", string(owner), doing[h.Now], short(h.To.Sub(h.From)))
}

func (h hold) text() string {
	owner, waited := printable.Escape(h.Owner), short(h.From.Sub(h.Came))
	if h.Now == "waiting" {
		return fmt.Sprintf("%s %s %s, since %s", owner, doing[h.Now], waited, clock(h.Came))
	}
	text := fmt.Sprintf("%s %s %s, from %s to %s, token %d", owner, doing[h.Now], short(h.To.Sub(h.From)), clock(h.From), clock(h.To), h.Token)
	if h.From.After(h.Came) {
		text += ", after it had waited for " + waited
	}
	return text
}
