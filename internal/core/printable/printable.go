// Package printable makes text of unknown origin safe to show. Owners, metas and names come from
// whoever can write to a store, and reach terminals, logs, JSON and web pages.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Escape escapes everything that a terminal or a browser would interpret rather than show: control
// characters, changes of the writing direction, invisible characters and invalid bytes.
func Escape(s string) string {
	return escape(s, func(b *strings.Builder, r rune) {
		if r > 0xffff {
			fmt.Fprintf(b, `\U%08x`, r)
		} else {
			fmt.Fprintf(b, `\u%04x`, r)
		}
	})
}

// EscapeJSON does the same within the strings of a JSON text, which keeps its meaning. Package
// encoding/json escapes only some of these characters. A newline at the end is kept.
func EscapeJSON(text []byte) []byte {
	s, newline := strings.CutSuffix(string(text), "\n")
	s = escape(s, func(b *strings.Builder, r rune) {
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(b, `\u%04x`, unit)
		}
	})
	if newline {
		s += "\n"
	}
	return []byte(s)
}

func escape(s string, write func(*strings.Builder, rune)) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			write(&b, r)
		}
		i += n
	}
	return b.String()
}
