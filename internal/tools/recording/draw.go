//go:build linux

package main

import (
	"fmt"
	"html"
	"strings"
	"time"
)

const (
	width      = 860
	lineHeight = 18
	// still is the moment that is shown without animation. At that time one job works and the
	// other waits.
	still = 4 * time.Second
)

// draw returns the panes, one below the other, as an animated picture. Every frame of a pane is
// visible until the time of the next frame, and the animation repeats.
func draw(panes []*pane) string {
	var body, style strings.Builder
	y, n := 0, 0
	for _, p := range panes {
		p.mu.Lock()
		defer p.mu.Unlock()
		height := p.lines*lineHeight + 46
		fmt.Fprintf(&body, `<rect x="0" y="%d" width="%d" height="%d" rx="8" class="window"/><text x="%d" y="%d" class="bar" text-anchor="middle">%s</text>`+"\n",
			y, width, height, width/2, y+19, html.EscapeString(p.title))
		for i, f := range p.frames {
			to := length
			if i+1 < len(p.frames) {
				to = p.frames[i+1].from
			}
			if f.from >= length || to <= f.from {
				continue
			}
			n++
			class := "f"
			if f.from <= still && still < to {
				class += " still"
			}
			fmt.Fprintf(&style, "@keyframes k%d{0%%{opacity:0}%.2f%%{opacity:1}%.2f%%{opacity:0}}\n", n, percent(f.from), percent(to))
			fmt.Fprintf(&body, `<g class="%s" style="animation-name:k%d">`, class, n)
			for j, line := range f.lines {
				fmt.Fprintf(&body, `<text x="14" y="%d" xml:space="preserve">%s</text>`, y+44+j*lineHeight, html.EscapeString(line))
			}
			body.WriteString("</g>\n")
		}
		y += height + 8
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="Two hosts start the same backup. The second waits for the first, and holdfast watch shows who holds and who waits.">
<!-- a recording: go run ./internal/tools/recording -->
<style>
.window{fill:#1d2126}.bar{font:12px system-ui,sans-serif;fill:#9198a1}
.f{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d7dde5;opacity:0;animation:%[3]ds step-end infinite}
.still{opacity:1}
@media (prefers-reduced-motion:reduce){.f{animation:none}}
%[4]s</style>
%[5]s</svg>
`, width, y-8, int(length.Seconds()), style.String(), body.String())
}

func percent(d time.Duration) float64 { return 100 * d.Seconds() / length.Seconds() }
