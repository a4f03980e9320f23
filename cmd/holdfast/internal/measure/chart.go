package measure

import (
	"fmt"
	"html"
	"strings"
)

// Chart draws throughput as bars, each with its limit, as an SVG image.
func Chart(title string, results []Result) string {
	const (
		left, longest = 250, 370
		height, gap   = 20, 12
	)
	most := 1.0
	for _, r := range results {
		if r.Unit == Pairs {
			most = max(most, r.Value, r.Limit)
		}
	}
	var b strings.Builder
	y := 44
	for _, r := range results {
		if r.Unit != Pairs {
			continue
		}
		width := longest * r.Value / most
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y+15, html.EscapeString(r.Text))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#1f6feb"/>`, left, y, max(width, 1), height)
		x := width
		if r.Limit > 0 {
			at := longest * r.Limit / most
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="2" height="%d" fill="#c4342d"><title>limit: %s</title></rect>`, left+at, y-3, height+6, Number(r.Limit))
			if x < at && at < x+70 {
				x = at // so that the line does not cross the figure
			}
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", left+x+8, y+15, Number(r.Value))
		y += height + gap
	}
	for _, r := range results {
		if r.Unit == Milliseconds {
			y += 18
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><text x="%d" y="%d">%s ms</text>`+"\n", left-8, y, html.EscapeString(r.Text), left, y, Number(r.Value))
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="720" height="%d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="white"/>
<text x="10" y="24" font-size="15">%s</text>
%s<text x="10" y="%d" fill="#57606a">pairs/s; the red line is the store alone</text>
</svg>
`, y+44, html.EscapeString(title), b.String(), y+30)
}

// Number writes a figure with three digits, or with separators between thousands.
func Number(v float64) string {
	switch {
	case v < 1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
