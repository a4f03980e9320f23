package main

import (
	"os"
	"time"
	"unicode/utf8"
)

// escapeTime is how long to wait for the rest of a key after an escape character.
const escapeTime = 50 * time.Millisecond

// keyNames are the keys that a terminal sends as several bytes, or as a control character.
var keyNames = map[string]string{
	"\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down",
	"\x1b[5~": "pageup", "\x1b[6~": "pagedown",
	"\x1b[H": "home", "\x1b[F": "end", "\x1bOH": "home", "\x1bOF": "end", "\x1b[1~": "home", "\x1b[4~": "end",
	"\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace",
}

// A keyboard reads a terminal byte by byte, and only when it is asked for the next byte. So the
// keys that the user types after the last one go to the shell.
type keyboard struct {
	bytes chan byte
	next  chan struct{}
	part  []byte           // of a key that is not complete
	late  <-chan time.Time // fires if nothing follows an escape character
}

func newKeyboard() *keyboard {
	k := &keyboard{bytes: make(chan byte), next: make(chan struct{}, 1)}
	go func() {
		for buf := make([]byte, 1); ; {
			<-k.next
			if n, err := os.Stdin.Read(buf); err != nil || n == 0 {
				return
			}
			k.bytes <- buf[0]
		}
	}()
	k.more()
	return k
}

// more asks for the next byte.
func (k *keyboard) more() { k.next <- struct{}{} }

// add returns the key that a byte completes, or "" if the key is not complete.
func (k *keyboard) add(c byte) string {
	k.part = append(k.part, c)
	k.late = nil
	text := string(k.part)
	switch {
	case text == "\x1b":
		k.late = time.After(escapeTime)
		return ""
	case k.part[0] == 0x1b && !complete(text):
		return ""
	case k.part[0] >= utf8.RuneSelf && !utf8.FullRune(k.part):
		return ""
	}
	k.part = nil
	if name, ok := keyNames[text]; ok {
		return name
	}
	return text
}

// complete reports whether an escape sequence has its last byte.
func complete(sequence string) bool {
	if len(sequence) < 3 {
		return sequence[1] != '[' && sequence[1] != 'O'
	}
	last := sequence[len(sequence)-1]
	return last >= 0x40 && last <= 0x7e || len(sequence) > 8
}

// alone returns the key of an escape character that was not followed by another byte.
func (k *keyboard) alone() string {
	k.part, k.late = nil, nil
	return keyNames["\x1b"]
}
