package printable_test

import (
	"encoding/json"
	"testing"
	"unicode"

	"github.com/holdfast-lock/holdfast/internal/core/printable"
)

func TestEscapeShowsWhatWouldBeInterpreted(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "",
		"web-1/4121 (备份) é": "web-1/4121 (备份) é",
		"\x1b]0;x\x07":      `\u001b]0;x\u0007`,
		"a\rb\nc\td":        `a\u000db\u000ac\u0009d`,
		"\u009b31m\x7f":     `\u009b31m\u007f`,
		"a\u202eb\u200b":    `a\u202eb\u200b`,
		"a\u2028b\u00a0c":   `a\u2028b\u00a0c`,
		"\U000e0041":        `\U000e0041`,
		"a\xffb":            `a\xffb`,
		"a\ufffdb":          "a\ufffdb",
	} {
		if got := printable.Escape(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzEscapeJSON(f *testing.F) {
	for _, seed := range []string{"a", "\u009b31m\u202e\x7f\r\n", "\U000e0041\u2028", "\xff", `\"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		plain, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		escaped := printable.EscapeJSON(append(plain, '\n'))
		for _, r := range string(escaped[:len(escaped)-1]) {
			if !unicode.IsPrint(r) {
				t.Errorf("%q remains in %q", r, escaped)
			}
		}
		if err := json.Unmarshal(plain, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(escaped, &got); err != nil || got != want || escaped[len(escaped)-1] != '\n' {
			t.Errorf("%q: %q, %v", s, escaped, err)
		}
	})
}
