package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// now waits until the newest screen contains all parts, in this order.
func (x *screen) now(parts ...string) {
	x.t.Helper()
	until(x.t, "on the newest screen: "+strings.Join(parts, ", "), func() bool {
		text := x.newest()
		for _, part := range parts {
			_, rest, ok := strings.Cut(text, part)
			if !ok {
				return false
			}
			text = rest
		}
		return true
	})
}

// newest returns the last screen that was drawn completely.
func (x *screen) newest() string {
	seen := x.seen.String()
	seen = seen[:strings.LastIndex(seen, "\x1b[J")+1]
	return seen[strings.LastIndex(seen, "\x1b[H")+1:]
}

const (
	down   = "\x1b[B"
	up     = "\x1bOA"
	enter  = "\r"
	escape = "\x1b"
)

// watch starts watch on a terminal, with three locks. Lock b has a waiter.
func (s *site) watch() *screen {
	s.t.Helper()
	for _, name := range []string{"a", "b", "c"} {
		s.ok("acquire", "--meta", "meta-"+name, name)
	}
	s.start("run", "b", "--", "true")
	s.waiting("b", 1)
	x := s.terminal(command, "watch", "--interval", "0.1")
	x.now("3 held", "by name", "q quits", "NAME", "> a", "b ", "c ")
	return x
}

func (x *screen) quits() {
	x.t.Helper()
	x.types("q")
	x.wantCode(0)
}

func TestWatchSelectsFiltersAndSorts(t *testing.T) {
	s := newSite(t)
	x := s.watch()
	x.types(down)
	x.now("> b")
	x.types("s")
	x.now("by longest held", "a ", "> b", "c ")
	x.types("s")
	x.now("by most waiting", "> b", "a ", "c ")
	x.types("ss")
	x.now("by name", "a ", "> b")
	x.types(down + down)
	x.now("> c")
	s.ok("acquire", "a2")
	x.now("4 held", "a2", "> c") // the selection stays where it was
	x.types("k")
	x.now("> b")
	x.types("/meta-c")
	x.now("contains: meta-c", "> c")
	x.types(enter)
	x.now(`1 with "meta-c"`, "↑↓ select", "> c")
	if strings.Contains(x.newest(), "meta-a") {
		t.Errorf("the filter does not hide: %q", x.newest())
	}
	x.types("/q\x7f\x7f\x7f\x7f\x7f\x7f\x7fqqq") // a q in a filter does not quit
	x.now("contains: qqq▏")
	x.types(enter)
	x.now(`0 with "qqq"`)
	x.types(escape)
	x.now("4 held  by name", "a ", "a2", "b ", "c ")
	x.quits()
}

func TestWatchShowsTheDetailsOfALock(t *testing.T) {
	s := newSite(t)
	x := s.watch()
	x.types(down + enter)
	id := s.look("b").Holders[0].ID.String()
	x.now("held by", id, "token", "meta-b", "1. in the queue")
	x.types(enter)
	x.now("NAME", "> b")
	x.types(enter)
	x.now(id)
	x.types(escape)
	x.now("NAME", "> b")
	x.quits()
}

func TestWatchBreaksOnlyWhatIsConfirmed(t *testing.T) {
	s := newSite(t)
	x := s.watch()
	before := s.look("b").Holders[0].ID
	x.types(down)
	x.now("> b")
	for _, refused := range []string{enter, "a" + enter, "bb" + enter, "b" + escape} {
		x.types("b")
		x.now("may still be running? type the name of the lock: ▏")
		x.types(refused)
		x.now("NAME")
		until(t, "the question is gone", func() bool { return !strings.Contains(x.newest(), "type the name") })
		if holders := s.look("b").Holders; len(holders) != 1 || holders[0].ID != before {
			t.Fatalf("%q broke the lock", refused)
		}
	}
	x.types("b")
	x.now("type the name of the lock: ▏")
	x.types("b" + enter)
	x.now(`broke "b"; its former holder may still be running`)
	until(t, "the waiter had its turn", func() bool { return len(s.look("b").Holders) == 0 })
	x.now("2 held", "a ", "c ")
	x.quits()
}

// Between the question and the answer, the lock may have got another holder.
func TestWatchDoesNotBreakTheGrantOfTheNextHolder(t *testing.T) {
	s := newSite(t)
	s.ok("acquire", "a")
	x := s.terminal(command, "watch", "--interval", "0.1")
	x.now("> a")
	x.types("b")
	x.now("type the name")
	s.ok("break", "a", "--id", s.look("a").Holders[0].ID.String())
	s.ok("acquire", "a")
	next := s.look("a").Holders[0].ID
	x.types("a" + enter)
	x.now("no longer held under that ID")
	if holders := s.look("a").Holders; len(holders) != 1 || holders[0].ID != next {
		t.Errorf("the grant of the next holder is gone: %+v", holders)
	}
	x.quits()
}

func TestWatchScrollsALongList(t *testing.T) {
	s := newSite(t)
	s.look("") // opens the store
	for i := range 40 {
		req := store.Request{Name: "n" + string(rune('A'+i)), ID: store.NewID(), Weight: 1, TTL: time.Minute, Tokens: 1}
		if answer, err := s.store.Acquire(t.Context(), req); err != nil || !answer.Granted() {
			t.Fatal(answer, err)
		}
	}
	x := s.terminal(command, "watch", "--interval", "0.1")
	x.now("40 held", "> nA")
	x.types("G")
	x.now("> nh")
	if rows := strings.Count(x.newest(), "\n"); rows > 24 {
		t.Errorf("%d lines on a screen of 24", rows)
	}
	x.types("\x1b[5~")
	x.now("> nS")
	x.types("\x1b[1~")
	x.now("> nA", "nB")
	x.quits()
}

func TestEscapeSequencesAreKeys(t *testing.T) {
	for bytes, want := range map[string]string{
		"\x1b[A": "up", "\x1b[6~": "pagedown", "\x1bOB": "down", "a": "a", "\xc3\xa4": "ä", "\r": "enter", "\x7f": "backspace",
		"\x1b[1;5A": "\x1b[1;5A", "\x1bx": "\x1bx",
	} {
		k, got := new(keyboard), ""
		for _, c := range []byte(bytes) {
			if got != "" {
				t.Errorf("%q: %q before its end", bytes, got)
			}
			got = k.add(c)
		}
		if got != want || len(k.part) > 0 {
			t.Errorf("%q is %q, want %q", bytes, got, want)
		}
	}
	k := new(keyboard)
	if k.add(0x1b) != "" || k.late == nil || k.alone() != "escape" || k.add('x') != "x" {
		t.Error("an escape character alone is not a key")
	}
}
