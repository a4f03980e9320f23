package main

import (
	"strings"
	"unicode"
)

// A table has rows of text in columns, without control characters. The first one names the row.
type table struct {
	head []string
	rows [][]string
	cuts []int // the columns to cut if the table is too wide, in this order
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

const minColumn = 8 // the least width to which a column is cut

// lines returns the table as aligned lines, the head first. If width is not 0, they are at most that
// wide, unless columns would be too narrow, or cannot be cut.
func (t *table) lines(width int) []string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], columns(cell))
		}
	}
	excess := 2*(len(widths)-1) - width
	for _, w := range widths {
		excess += w
	}
	for _, i := range t.cuts {
		if width > 0 {
			cut := max(0, min(excess, widths[i]-minColumn))
			widths[i], excess = widths[i]-cut, excess-cut
		}
	}
	lines := []string{t.line(t.head, widths)}
	for _, row := range t.rows {
		lines = append(lines, t.line(row, widths))
	}
	return lines
}

func (t *table) line(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		cell = cut(cell, widths[i])
		b.WriteString(cell)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-columns(cell)+2))
		}
	}
	return strings.TrimRight(b.String(), " ")
}

func cut(s string, width int) string {
	if columns(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeColumns(r); n > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}

func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

// runeColumns returns the approximate width of a character: East Asian characters and
// pictographs take two columns, combining marks take none.
func runeColumns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60,
		r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
