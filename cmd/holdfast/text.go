package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/core/printable"
	"github.com/holdfast-lock/holdfast/store"
)

// clean escapes everything that a terminal would interpret rather than show.
func clean(s string) string { return printable.Escape(s) }

// short formats a duration with the precision that a reader needs.
func short(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute-time.Second/2:
		return fmt.Sprintf("%.0fs", d.Seconds())
	}
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}

// isShellWord reports whether shells take a text as one word of which they change nothing.
func isShellWord(s string) bool {
	return s != "" && s[0] != '=' && !strings.ContainsFunc(s, func(r rune) bool { // zsh replaces =CMD by the path of CMD
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-+.,:/@%=", r)
	})
}

// shellQuote makes a word safe to paste into a shell.
func shellQuote(s string) string {
	if isShellWord(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func describeHeld(e *holdfast.HeldError) string {
	text := "has other waiters, which come first"
	if len(e.Holders) > 0 {
		text = "is " + describeHolder(&e.Holders[0])
	}
	if n := len(e.Holders) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	switch {
	case e.Place > 0:
		text += fmt.Sprintf("; place %d of %d in the queue", e.Place, max(e.Place, e.Waiters+1))
	case e.Waiters > 0:
		text += fmt.Sprintf("; %d in the queue", e.Waiters)
	}
	return fmt.Sprintf("%q %s", e.Name, text)
}

func describeHolder(h *holdfast.Holder) string {
	owner := h.Owner
	if owner == "" {
		owner = "an unnamed owner"
	}
	if h.Meta != "" {
		owner += " (" + h.Meta + ")"
	}
	layout := time.TimeOnly
	if h.Age >= 12*time.Hour {
		layout = time.DateTime
	}
	since, age := time.Now().Add(-h.Age).Format(layout), short(h.Age)
	switch h.State {
	case store.Done:
		return fmt.Sprintf("closed: done by %s at %s (%s ago), free again in %s", owner, since, age, short(h.Left))
	case store.Cooling:
		return fmt.Sprintf("in cool-down after release by %s, free again in %s", owner, short(h.Left))
	}
	return fmt.Sprintf("held by %s since %s (%s ago), %s left unless renewed", owner, since, age, short(h.Left))
}
