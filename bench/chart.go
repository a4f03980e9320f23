package main

import (
	"cmp"
	"fmt"
	"html"
	"strings"
)

const (
	chartWidth = 760
	barHeight  = 18
	barLeft    = 130
	barMost    = 460 // length of the longest bar
)

var barColours = map[string]string{us: "#1f6feb", raw: "#9aa4ad"}

// chart draws the throughput of each workload as bars. Each workload has its own scale.
func (r *Report) chart() string {
	var b strings.Builder
	y := 34
	for i := 0; i < len(r.Rows); {
		group := r.Rows[i:]
		n := 0
		for n < len(group) && group[n].Unit == pairs && group[n].ID == group[0].ID && group[n].Work == group[0].Work {
			n++
		}
		i += max(n, 1)
		if n == 0 {
			continue
		}
		group = group[:n]
		most := 0.0
		for _, row := range group {
			most = max(most, row.Median)
		}
		y += 14
		fmt.Fprintf(&b, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", y, html.EscapeString(group[0].ID+": "+group[0].Work))
		for _, row := range group {
			y += 6
			width := max(1, int(barMost*row.Median/max(most, 1)))
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, barLeft-8, y+barHeight-5, html.EscapeString(row.Who))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`, barLeft, y, width, barHeight, cmp.Or(barColours[row.Who], "#d0a24c"))
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", barLeft+width+6, y+barHeight-5, number(row.Median))
			y += barHeight
		}
		y += 12
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="white"/>
<text x="10" y="24" font-size="16">Lock and unlock, pairs per second (median of %d rounds)</text>
%s</svg>
`, chartWidth, y+16, r.Rounds, b.String())
}
