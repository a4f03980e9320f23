package main

import (
	"fmt"
	"html"
	"strings"
)

// A chart is a set of horizontal bars, in groups that each have their own scale.
type chart struct {
	title  string
	groups []barGroup
	note   string // at the bottom
}

type barGroup struct {
	title string
	bars  []bar
}

type bar struct {
	label string
	value float64
	text  string // at the end of the bar
	kind  string // class in the style sheet: us, raw or peer
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

// svg draws the chart.
func (c *chart) svg() string {
	var b strings.Builder
	text := func(x, y int, class, s string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d"%s>%s</text>`+"\n", x, y, class, html.EscapeString(s))
	}
	y := 28
	text(12, y, ` class="title"`, c.title)
	for _, g := range c.groups {
		most := 0.0
		for _, bar := range g.bars {
			most = max(most, bar.value)
		}
		y += 28
		text(12, y, ` class="group"`, g.title)
		for _, bar := range g.bars {
			y += 6
			width := max(1, int(barMost*bar.value/max(most, 1e-9)))
			text(barLeft-8, y+barHeight-5, ` text-anchor="end"`, bar.label)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" class="%s"/>`+"\n", barLeft, y, width, barHeight, bar.kind)
			text(barLeft+width+6, y+barHeight-5, "", bar.text)
			y += barHeight
		}
	}
	y += 28
	text(12, y, ` class="note"`, c.note)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="%[3]s">
%[4]s<rect class="back" width="100%%" height="100%%" rx="6"/>
%[5]s</svg>
`, chartWidth, y+14, html.EscapeString(c.title), chartStyle, b.String())
}
