//go:build unix

package main

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

func TestLsAndShowDescribeHoldersAndWaiters(t *testing.T) {
	s := newSite(t)
	if out := s.ok("ls"); out != "" {
		t.Errorf("an empty list: %q", out)
	}
	if out := s.ok("show", "job:a"); out != "job:a is free\n" {
		t.Errorf("a free lock: %q", out)
	}
	if free := s.show("job:a"); free.Name != "job:a" || len(free.Holders) != 0 || len(free.Waiters) != 0 {
		t.Errorf("a free lock: %+v", free)
	}
	holder := s.hold("job:a", "--meta", "nightly run")
	other := s.hold("other", "--slots", "3")
	waiter := s.start("run", "--meta", "me too", "job:a", "--", "true")
	s.waiting("job:a", 1)

	l := s.show("job:a")
	h := l.Holders[0]
	if h.Mode != "exclusive" || h.State != "held" || h.Token == 0 || h.Meta != "nightly run" || len(h.ID) != 32 ||
		!strings.HasPrefix(h.Owner, hostname(t)+"/") || h.Left <= 0 || h.Left > 30 || time.Since(h.Since) > time.Minute {
		t.Errorf("holder: %+v", h)
	}
	if w := l.Waiters[0]; w.Mode != "exclusive" || w.Meta != "me too" || len(w.ID) != 32 {
		t.Errorf("waiter: %+v", w)
	}

	lines := strings.Split(strings.TrimSpace(s.ok("ls")), "\n")
	if len(lines) != 3 || !regexp.MustCompile(`^NAME +HOLDER +MODE +TOKEN +HELD +LEFT +WAITING +META$`).MatchString(lines[0]) {
		t.Fatalf("list: %q", lines)
	}
	if !regexp.MustCompile(`^job:a +\S+/\d+/\w+ +exclusive +\d+ +[\d.]+s +\d+s +1 +nightly run$`).MatchString(lines[1]) {
		t.Errorf("line: %q", lines[1])
	}
	if !regexp.MustCompile(`^other +\S+ +1 of 3 +\d+ +\S+ +\S+ +- +-$`).MatchString(lines[2]) {
		t.Errorf("line: %q", lines[2])
	}
	if strings.Index(lines[0], "MODE") != strings.Index(lines[1], "exclusive") {
		t.Errorf("not aligned:\n%s", strings.Join(lines, "\n"))
	}
	if out := s.ok("ls", "--names", "job:"); out != "job:a\n" {
		t.Errorf("names: %q", out)
	}
	if out := s.ok("ls", "--json", "oth"); decode[lockJSON](t, out).Limit != 3 {
		t.Errorf("json: %s", out)
	}
	busy := s.run("run", "-n", "--json", "job:a", "--", "true")
	if busy.wantCode(75); strings.Contains(busy.err.String(), "permits") {
		t.Errorf("an exclusive holder has permits: %s", &busy.err)
	}
	out := s.ok("show", "job:a")
	for _, part := range []string{"held by " + h.Owner, h.ID, "exclusive", "unless renewed", "nightly run", "1. in the queue: ", "me too"} {
		if !strings.Contains(out, part) {
			t.Errorf("show does not say %q:\n%s", part, out)
		}
	}
	s.write("go", "")
	for _, p := range []*process{holder, other, waiter} {
		p.wantCode(0)
	}
}

func TestControlCharactersAreEscaped(t *testing.T) {
	s := newSite(t)
	const nasty = "\x1b]0;\x07\u202ex\u009b\x7f"
	for _, name := range []string{"plain", nasty} {
		req := suites.Request(name)
		req.Owner, req.Meta = nasty, nasty
		suites.Granted(t, s.open(), req)
	}
	for _, args := range [][]string{{"ls"}, {"ls", "--names"}, {"show", "plain"}, {"run", "-n", "plain", "--", "true"}, {"ls", "--json"}, {"show", "--json", "plain"}, {"run", "-n", "--json", "plain", "--", "true"}} {
		p := s.run(args...)
		all := p.out.String() + p.err.String()
		if strings.ContainsAny(all, "\x1b\x07\u202e\u009b\x7f") || !strings.Contains(all, `\u001b]0;\u0007\u202ex\u009b\u007f`) {
			t.Errorf("%q: %q", args, all)
		}
	}
	if names := s.complete("show", ""); names != "plain" {
		t.Errorf("completion offers %q, want only the valid name", names)
	}
	if l := decode[lockJSON](t, s.ok("show", "--json", "plain")); l.Holders[0].Meta != nasty {
		t.Errorf("JSON must contain the text unchanged, not %q", l.Holders[0].Meta)
	}
}

func TestBreakOfAClosedLockDoesNotSpeakOfAHolder(t *testing.T) {
	s := newSite(t)
	s.run("once", "--keep", "1h", "a", "--", "true").wantCode(0)
	s.run("run", "--min-hold", "1h", "b", "--", "true").wantCode(0)
	for name, says := range map[string]string{"a": "the record that it was done is removed", "b": "before its minimum hold is over"} {
		p := s.run("break", name, "--id", s.show(name).Holders[0].ID)
		p.wantCode(0)
		p.wantErr(`"`+name+`" is open again`, says)
		if len(s.show(name).Holders) != 0 {
			t.Errorf("%s is not free", name)
		}
	}
}

func TestWatchInAPipePrintsRepeatedly(t *testing.T) {
	s := newSite(t)
	p := s.start("watch", "--interval", "0.1")
	until(t, "an empty list, twice", func() bool { return strings.Count(p.out.String(), "no lock to show") >= 2 })
	holder := s.hold("a")
	until(t, "the lock is shown", func() bool { return strings.Contains(p.out.String(), "\na ") })
	p.signal(syscall.SIGINT)
	p.wantCode(0)
	if strings.Contains(p.out.String(), "\x1b") {
		t.Errorf("control sequences in a pipe: %q", &p.out)
	}
	j := s.start("watch", "--json", "--interval", "0.1")
	until(t, "two lines", func() bool { return strings.Count(j.out.String(), "\n") >= 2 })
	j.signal(syscall.SIGTERM)
	j.wantCode(143)
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 0} {
		stalled := s.command("watch", "--interval", "0.1")
		reader, writer, filler := fifo(t)
		stalled.cmd.Stdout = writer
		stalled.start()
		if _, err := reader.Read(make([]byte, 1)); err != nil { // it is running
			t.Fatal(err)
		}
		fill(filler)
		time.Sleep(200 * time.Millisecond) // until it writes again, which only blocks
		stalled.signal(sig)
		stalled.wantCode(code)
	}
	s.run("watch", "--interval", "0.01").wantCode(64)
	s.write("go", "")
	holder.wantCode(0)
}

func TestLsAndWatchShowOnlyLocksInTheGivenStates(t *testing.T) {
	s := newSite(t)
	s.ok("acquire", "held:old")
	s.ok("acquire", "held:new", "--meta", "nightly")
	s.ok("once", "--keep", "1h", "done", "--", "true")
	waiter := s.start("run", "held:new", "--", "true")
	s.waiting("held:new", 1)
	for _, test := range []struct{ flags, names string }{
		{"", "done held:new held:old"},
		{"--held", "held:new held:old"},
		{"--done", "done"},
		{"--waiting", "held:new"},
		{"--done --waiting", "done held:new"},
		{"--contains nightly", "held:new"},
		{"--contains ne", "done held:new"},
		{"--held --contains ne", "held:new"},
		{"--sort waiting", "held:new done held:old"},
		{"--sort age --held", "held:old held:new"},
		{"--held --contains nobody", ""},
	} {
		args := append([]string{"ls", "--names"}, strings.Fields(test.flags)...)
		if names := strings.Fields(s.ok(args...)); strings.Join(names, " ") != test.names {
			t.Errorf("ls %s: %q, want %q", test.flags, names, test.names)
		}
	}
	w := s.start("watch", "--json", "--sort", "age", "--held")
	until(t, "a list", func() bool { return strings.Contains(w.out.String(), "\n") })
	w.signal(syscall.SIGINT)
	w.wantCode(0)
	line, _, _ := strings.Cut(w.out.String(), "\n")
	if list := decode[struct{ Locks []lockJSON }](t, line); len(list.Locks) != 2 || list.Locks[0].Name != "held:old" {
		t.Errorf("watch --sort age --held: %s", line)
	}
	for _, cmd := range []string{"ls", "watch"} {
		s.run(cmd, "--sort", "size").wantErr("--sort size", "name, age, waiting, left")
	}
	waiter.signal(syscall.SIGKILL)
}
