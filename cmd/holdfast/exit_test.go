//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
)

func TestExitCodes(t *testing.T) {
	s := newSite(t)
	s.write("plain", "no program")
	s.write("noshebang", "echo hello\n")
	if err := syscall.Chmod(s.path("plain"), 0o644); err != nil {
		t.Fatal(err)
	}
	const broken = "sqlite:/nonexistent/locks.db"
	holder := s.hold("busy")
	for _, test := range []struct {
		what string
		code int
		says string // on stderr; nothing at all if empty
		args []string
	}{
		{"success", 0, "", []string{"run", "a", "--", "true"}},
		{"the child's own code", 7, "", []string{"run", "a", "--", "sh", "-c", "exit 7"}},
		{"a code of ours by the child", 75, "", []string{"run", "a", "--", "sh", "-c", "exit 75"}},
		{"the largest code", 255, "", []string{"run", "a", "--", "sh", "-c", "exit 255"}},
		{"child ended by TERM", 143, "", []string{"run", "a", "--", "sh", "-c", "kill -TERM $$"}},
		{"child ended by KILL", 137, "", []string{"run", "a", "--", "sh", "-c", "kill -KILL $$"}},
		{"child ended by a late signal", 128 + 35, "", []string{"run", "a", "--", "sh", "-c", "kill -35 $$"}},
		{"no command", 64, "no command to run", []string{"run", "a"}},
		{"empty command", 64, "no command to run", []string{"run", "a", "--"}},
		{"empty script", 64, "script is empty", []string{"run", "a", "-c", ""}},
		{"no name", 64, "NAME is missing", []string{"run", "--", "true"}},
		{"empty name", 64, "empty name", []string{"run", "", "--", "true"}},
		{"bad name", 64, "control character", []string{"run", "a\x1b[31m", "--", "true"}},
		{"forgotten dashes", 64, `write "--" in front`, []string{"run", "a", "true"}},
		{"unknown flag", 64, "did you mean --grace", []string{"run", "--grase", "1s", "a", "--", "true"}},
		{"bad duration", 64, "want a time such as", []string{"run", "--wait", "soon", "a", "--", "true"}},
		{"negative duration", 64, "negative", []string{"run", "--wait", "-1s", "a", "--", "true"}},
		{"grace of half the TTL", 64, "less than half", []string{"run", "--ttl", "10s", "--grace", "5s", "a", "--", "true"}},
		{"grace of less", 0, "", []string{"run", "--ttl", "10s", "--grace", "4.9s", "a", "--", "true"}},
		{"short TTL", 64, "the least is 1s", []string{"run", "--ttl", "0.9", "a", "--", "true"}},
		{"contrary flags", 64, "give one of them", []string{"run", "-n", "--wait", "1s", "a", "--", "true"}},
		{"two kinds of lock", 64, "give one of them", []string{"run", "--shared", "--slots", "2", "a", "--", "true"}},
		{"a period for several at a time", 64, "leave out --shared", []string{"run", "--period", "1h", "--shared", "a", "--", "true"}},
		{"a period and a wait", 64, "does not wait", []string{"run", "--period", "1h", "--wait", "1s", "a", "--", "true"}},
		{"a short period", 64, "the least is 2s", []string{"run", "--period", "1s", "a", "--", "true"}},
		{"a period and a bound", 0, "", []string{"run", "--period", "1h", "--max-hold", "10m", "bounded", "--", "true"}},
		{"second run in a period", 0, "", []string{"run", "--period", "1h", "bounded", "--", "false"}},
		{"second run in a period with a code of choice", 9, "open again in ", []string{"run", "--period", "1h", "-E", "9", "bounded", "--", "false"}},
		{"once for no time", 64, "--keep is missing", []string{"once", "a", "--", "true"}},
		{"once of a failure", 3, "", []string{"once", "--keep", "1h", "report", "--", "sh", "-c", "exit 3"}},
		{"once of a success", 0, "", []string{"once", "--keep", "1h", "report", "--", "true"}},
		{"once more", 0, "", []string{"once", "--keep", "1h", "report", "--", "false"}},
		{"once more, with words", 0, "already done by", []string{"once", "-v", "--keep", "1h", "report", "--", "false"}},
		{"once of what is held", 75, `"busy" is held by`, []string{"once", "-n", "--keep", "1h", "busy", "--", "true"}},
		{"once of what cannot be run", 127, "command not found", []string{"once", "--keep", "1h", "a", "--", "no-such-command"}},
		{"busy code out of range", 64, "from 0 to 255", []string{"run", "-E", "256", "a", "--", "true"}},
		{"unknown signal", 64, "name of a signal", []string{"run", "--signal", "FOO", "a", "--", "true"}},
		{"unknown reaction", 64, "term, kill or warn", []string{"run", "--on-lost", "pray", "a", "--", "true"}},
		{"closed descriptor", 64, "is not open", []string{"run", "--json-fd", "33", "a", "--", "true"}},
		{"stdout is the child's", 64, "from 2 to", []string{"run", "--json-fd", "1", "a", "--", "true"}},
		{"malformed URL", 64, "--store: invalid: redis URL: malformed host", []string{"run", "--store", "redis://h:port", "a", "--", "true"}},
		{"empty URL", 64, "leave the flag out", []string{"ls", "--store", ""}},
		{"path and no URL", 64, "such as sqlite:/", []string{"run", "--store", "./locks.db", "a", "--", "true"}},
		{"unknown kind of store", 64, `no store of the kind "foo"; known are: `, []string{"run", "--store", "foo://h", "a", "--", "true"}},
		{"unknown kind of store to look at", 64, `no store of the kind "foo"; known are: `, []string{"ls", "--store", "foo://h"}},
		{"unknown parameter", 64, "unknown parameter", []string{"run", "--store", "sqlite:x?a=b", "a", "--", "true"}},
		{"store of one process", 64, "within one process", []string{"run", "--store", "memory:", "a", "--", "true"}},
		{"store of one process to look at", 64, "within one process", []string{"ls", "--store", "memory:"}},
		{"store in a file of another kind", 64, "is not an SQLite database", []string{"run", "--store", "sqlite:" + s.path("plain"), "a", "--", "true"}},
		{"store in no directory", 64, "create it first", []string{"run", "--store", broken, "a", "--", "true"}},
		{"store that cannot be written", 69, "cannot open the store", []string{"run", "--store", "sqlite:/proc/locks.db", "a", "--", "true"}},
		{"busy", 75, `"busy" is held by`, []string{"run", "-n", "busy", "--", "true"}},
		{"busy without a wait", 75, `"busy" is held by`, []string{"run", "--wait", "0", "busy", "--", "true"}},
		{"busy after a wait", 75, `place 1 of 1 in the queue`, []string{"run", "-w", "0.05", "busy", "--", "true"}},
		{"busy with a code of choice", 9, `"busy" is held by`, []string{"run", "-n", "-E", "9", "busy", "--", "true"}},
		{"busy is fine", 0, "", []string{"run", "-n", "--busy-ok", "busy", "--", "true"}},
		{"busy in silence", 75, "", []string{"run", "-nq", "busy", "--", "true"}},
		{"busy in a shared way", 75, `"busy" is held by`, []string{"run", "-n", "-s", "busy", "--", "true"}},
		{"not executable", 126, "permission denied", []string{"run", "a", "--", "./plain"}},
		{"a directory", 126, "is a directory", []string{"run", "a", "--", "/"}},
		{"no program", 126, "#!/bin/sh", []string{"run", "a", "--", "./noshebang"}},
		{"not found", 127, "command not found", []string{"run", "a", "--", "no-such-command"}},
		{"no such file", 127, "command not found", []string{"run", "a", "--", "./no-such-file"}},
		{"unknown command", 64, "did you mean: holdfast show", []string{"shwo", "a"}},
		{"no command at all", 64, "holdfast help", nil},
		{"flag in front", 64, "after the command", []string{"--store", "x"}},
		{"too many arguments", 64, `unexpected "b"`, []string{"show", "a", "b"}},
		{"break without an id", 64, "--id is missing", []string{"break", "busy"}},
		{"break of nothing", 79, "not held under that id", []string{"break", "a", "--id", strings.Repeat("1", 32)}},
		{"malformed id", 64, "32 hexadecimal digits", []string{"release", "a", "--id", "1"}},
		{"release of nothing", 79, "not held under that id", []string{"release", "a", "--id", strings.Repeat("1", 32)}},
		{"renewal of nothing", 79, "not held under that id", []string{"renew", "a", "--id", strings.Repeat("1", 32)}},
		{"unknown shell", 64, "unknown shell", []string{"completion", "csh"}},
	} {
		t.Run(test.what, func(t *testing.T) {
			p := s.run(test.args...)
			p.t = t
			p.wantCode(test.code)
			switch {
			case test.says != "":
				p.wantErr(test.says)
			case p.err.String() != "":
				t.Fatalf("stderr: %s", &p.err)
			}
		})
	}
	s.write("go", "")
	holder.wantCode(0)
}

// A name that is refused must not leave a trace, not even a file for the store.
func TestBadInputTouchesNothing(t *testing.T) {
	s := newSite(t)
	for _, args := range [][]string{
		{"run", "a\n", "--", "true"},
		{"run", "a"},
		{"run", "--grace", "1h", "a", "--", "true"},
		{"run", "a", "--", "no-such-command"},
		{"ls", "\x01"},
		{"show", ""},
		{"acquire", strings.Repeat("x", 600)},
		{"renew", "a"},
	} {
		p := s.run(args...)
		if code := p.code(); code != exitUsage && code != exitNotFound {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
	if _, err := s.stat("locks.db"); err == nil {
		t.Error("the store was touched")
	}
}

func TestABusyMessageNamesHolderHostSinceTimeLeftAndPlace(t *testing.T) {
	s := newSite(t)
	holder := s.hold("backup", "--meta", "nightly \u202e run", "--ttl", "20s")
	owner := s.show("backup").Holders[0].Owner
	first := s.start("run", "backup", "--", "true")
	s.waiting("backup", 1)
	p := s.run("run", "--wait", "0.6", "backup", "--", "touch", s.path("ran")) // longer than it takes to see a progress line
	p.wantCode(75)
	p.wantErr(owner, hostname(t), `(nightly \u202e run)`, " since ", "s ago)", "s left unless renewed", "place 2 of 2 in the queue", "holdfast show backup")
	if _, err := s.stat("ran"); err == nil {
		t.Error("the command ran without the lock")
	}
	s.write("go", "")
	holder.wantCode(0)
	first.wantCode(0)
}
