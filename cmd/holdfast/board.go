package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/core/selection"
)

// A board is the content that watch shows on a terminal. It also handles the keys that change the
// content. It uses neither the terminal nor the store.
type board struct {
	store   string
	filter  filter
	all     []holdfast.Info
	at      time.Time // of the last listing without an error
	err     error     // of the last listing
	listed  bool
	chosen  row // the selected row; it stays selected when other rows appear or disappear
	place   int // of the selected row
	top     int // first row, or first line of the details, on the screen
	details bool
	prompt  *prompt
	message string // the outcome of the last break
}

// A row is one line of the list: a holder, or a lock that only has waiters.
type row struct {
	name string
	id   holdfast.ID
}

// A prompt is a line that the user types.
type prompt struct {
	question string
	text     string
	changed  func(text string) // may be nil
	done     func(text string)
}

// set shows a new listing.
func (b *board) set(all []holdfast.Info, err error) {
	if b.listed, b.err = true, err; err == nil {
		b.all, b.at = all, time.Now()
	}
}

// rows returns the rows of lockTable.
func rows(all []holdfast.Info) (list []row) {
	for _, info := range all {
		if len(info.Holders) == 0 {
			list = append(list, row{name: info.Name})
		}
		for _, h := range info.Holders {
			list = append(list, row{info.Name, h.ID})
		}
	}
	return list
}

// locate finds the selected row in a list, or the one that took its place.
func (b *board) locate(list []row) {
	if i := slices.Index(list, b.chosen); i >= 0 {
		b.place = i
	}
	b.place = max(0, min(b.place, len(list)-1))
	b.chosen = row{}
	if len(list) > 0 {
		b.chosen = list[b.place]
	}
}

// move selects another row, or scrolls the details.
func (b *board) move(by int) {
	if b.details {
		b.top = max(0, b.top+by)
		return
	}
	list := rows(b.filter.apply(b.all))
	b.locate(list)
	b.place = max(0, min(b.place+by, len(list)-1))
	if len(list) > 0 {
		b.chosen = list[b.place]
	}
}

// find returns the newest state of a lock.
func (b *board) find(name string) holdfast.Info {
	for _, info := range b.all {
		if info.Name == name {
			return info
		}
	}
	return holdfast.Info{Name: name}
}

// key changes the board. It reports whether the user quits. BreakLock is called for a lock after
// the user has confirmed, and returns the outcome.
func (b *board) key(k string, page int, breakLock func(row) string) (quit bool) {
	if b.prompt != nil {
		b.answer(k)
		return false
	}
	b.message = ""
	switch k {
	case "q", "Q":
		return true
	case "up", "k":
		b.move(-1)
	case "down", "j":
		b.move(1)
	case "pageup":
		b.move(-page)
	case "pagedown", " ":
		b.move(page)
	case "home", "g":
		b.move(-len(b.all) * 1000)
	case "end", "G":
		b.move(len(b.all) * 1000)
	case "enter":
		b.locate(rows(b.filter.apply(b.all)))
		b.details, b.top = !b.details && b.chosen.name != "", 0
	case "escape":
		if !b.details {
			b.filter.Text = ""
		}
		b.details, b.top = false, 0
	case "s":
		b.filter.sortNext()
	case "/":
		b.details = false
		b.prompt = &prompt{
			question: "show only what contains: ", text: b.filter.Text,
			changed: func(text string) { b.filter.Text = text },
			done:    func(text string) { b.filter.Text = text },
		}
	case "b":
		b.askBreak(breakLock)
	}
	return false
}

// askBreak asks the user to type the name of the selected lock, because breaking a lock is
// dangerous.
func (b *board) askBreak(breakLock func(row) string) {
	b.locate(rows(b.filter.apply(b.all)))
	chosen := b.chosen
	if chosen.id.IsZero() {
		b.message = "no holder is selected"
		return
	}
	question := ""
	for _, h := range b.find(chosen.name).Holders {
		switch {
		case h.ID != chosen.id:
		case h.State == holdfast.StateHeld:
			question = fmt.Sprintf("break the grant of %s, who may still be running? type the name of the lock: ", clean(h.Owner))
		default:
			question = fmt.Sprintf("open the lock that %s has closed (%s)? type the name of the lock: ", clean(h.Owner), h.State)
		}
	}
	b.prompt = &prompt{
		question: question,
		done: func(text string) {
			if text != chosen.name {
				b.message = "nothing was broken: that is not the name of the lock"
				return
			}
			b.message = breakLock(chosen)
		},
	}
}

// answer adds a key to the line that the user types.
func (b *board) answer(k string) {
	p := b.prompt
	switch k {
	case "escape":
		b.prompt = nil
		return
	case "enter":
		b.prompt = nil
		p.done(p.text)
		return
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(p.text)
		p.text = p.text[:len(p.text)-n]
	default:
		if r, n := utf8.DecodeRuneInString(k); n != len(k) || !unicode.IsPrint(r) {
			return
		}
		p.text += k
	}
	if p.changed != nil {
		p.changed(p.text)
	}
}

const boardHelp = "↑↓ select  ⏎ details  / filter  s sort  b break  q quits"

// lines returns the screen.
func (b *board) lines(width, height int, colour bool) []string {
	head := time.Now().Format(time.TimeOnly)
	shown := b.filter.apply(b.all)
	switch {
	case b.err != nil:
		_, text := explain(b.err, "")
		head += "  " + clean(text)
		if !b.at.IsZero() {
			head += fmt.Sprintf(" (the list is %s old)", short(time.Since(b.at)))
		}
	case !b.listed:
		head += "  reading the store"
	default:
		head += "  " + count(b.all)
		if b.filter.Text != "" {
			head += fmt.Sprintf("; %d with %q", len(shown), b.filter.Text)
		} else if len(shown) < len(b.all) {
			head += fmt.Sprintf("; %d shown", len(shown))
		}
		head += "  by " + selection.Orders[b.filter.order()].Text + "  " + b.store
	}
	second := boardHelp
	switch {
	case b.prompt != nil:
		second = b.prompt.question + clean(b.prompt.text) + "▏"
	case b.message != "":
		second = clean(b.message)
	case b.details:
		second = "↑↓ scroll  ⏎ back to the list  b break  q quits"
	}
	// If the text is too wide, keep the end of a question rather than its beginning.
	for columns(second) > width && b.prompt != nil {
		_, n := utf8.DecodeRuneInString(second)
		second = second[n:]
	}
	screen := []string{cut(head, width), cut(second, width)}
	room := max(1, height-len(screen))
	if b.details {
		return append(screen, b.detailLines(width, room, colour)...)
	}
	if len(shown) == 0 {
		return screen
	}
	b.locate(rows(shown))
	const marker = 2
	table := lockTable(shown).lines(max(1, width-marker), false)
	head = cut(table[0], width-marker)
	if colour {
		head = bold + head + plain
	}
	screen = append(screen, "  "+head)
	room = max(1, room-1)
	b.top = min(max(b.top, b.place-room+1), b.place, max(0, len(table)-1-room))
	for i := b.top; i < min(len(table)-1, b.top+room); i++ {
		line := cut("  "+table[1+i], width)
		if i == b.place {
			line = cut("> "+table[1+i], width)
			if colour {
				line = reverse + line + plain
			}
		}
		screen = append(screen, line)
	}
	return screen
}

// reverse swaps the colours of text and background.
const reverse = "\x1b[7m"

// detailLines returns the output of the command show, as many lines as fit.
func (b *board) detailLines(width, room int, colour bool) []string {
	text := strings.Split(strings.TrimRight(showText(b.find(b.chosen.name), colour), "\n"), "\n")
	b.top = max(0, min(b.top, len(text)-room))
	var list []string
	for _, line := range text[b.top:min(len(text), b.top+room)] {
		if !strings.Contains(line, bold) {
			line = cut(line, width)
		}
		list = append(list, line)
	}
	return list
}
