//go:build unix

package main

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestExitCodes(t *testing.T) {
	s := newPlainSite(t)
	s.write("plain", "no program")
	s.write("noshebang", "echo hello\n")
	if err := syscall.Chmod(s.path("plain"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "PATH="+s.dir+":"+os.Getenv("PATH"))
	const broken = "sqlite:/nonexistent/locks.db"
	holder := s.hold("busy")
	wrong := *s // not even the file of this store may be created
	wrong.env = append(slices.Clone(s.env), "HOLDFAST_STORE=sqlite:"+s.path("none.db"))
	for _, test := range []struct {
		what string
		code int
		says string // on stderr; if empty, stderr must be empty
		args []string
	}{
		{"success", 0, "", []string{"run", "a", "--", "true"}},
		{"the child's own code", 7, "", []string{"run", "a", "--", "sh", "-c", "exit 7"}},
		{"the largest code", 255, "", []string{"run", "a", "--", "sh", "-c", "exit 255"}},
		{"child ended by TERM", 143, "", []string{"run", "a", "--", "sh", "-c", "kill -TERM $$"}},
		{"child ended by KILL", 137, "", []string{"run", "a", "--", "sh", "-c", "kill -KILL $$"}},
		{"child ended by a real-time signal", 128 + 35, "", []string{"run", "a", "--", "sh", "-c", "kill -35 $$"}},
		{"no command", 64, "no command to run", []string{"run", "a"}},
		{"empty command", 64, "no command to run", []string{"run", "a", "--"}},
		{"empty script", 64, "script is empty", []string{"run", "a", "-c", ""}},
		{"no name", 64, "NAME is missing", []string{"run", "--", "true"}},
		{"empty name", 64, "empty name", []string{"run", "", "--", "true"}},
		{"bad name", 64, "control character", []string{"run", "a\x1b[31m", "--", "true"}},
		{"forgotten dashes", 64, `write "--" before the command`, []string{"run", "a", "true"}},
		{"unknown flag", 64, "unknown flag: --grase; see: holdfast run --help", []string{"run", "--grase", "1s", "a", "--", "true"}},
		{"unknown letter", 64, "unknown shorthand flag: 'x' in -x", []string{"run", "-nx", "a", "--", "true"}},
		{"missing value", 64, "flag needs an argument: --wait", []string{"run", "a", "--wait"}},
		{"no number", 64, `invalid argument "x" for "--slots" flag`, []string{"run", "--slots", "x", "a", "--", "true"}},
		{"number out of range", 64, "want a number from 1 to ", []string{"run", "--slots", "0", "a", "--", "true"}},
		{"bad duration", 64, "want a duration such as", []string{"run", "--wait", "soon", "a", "--", "true"}},
		{"negative duration", 64, "negative", []string{"run", "--wait", "-1s", "a", "--", "true"}},
		{"grace of half the TTL", 64, "less than half", []string{"run", "--ttl", "10s", "--grace", "5s", "a", "--", "true"}},
		{"grace of less", 0, "", []string{"run", "--ttl", "10s", "--grace", "4.9s", "a", "--", "true"}},
		{"short TTL", 64, "want at least 1s", []string{"run", "--ttl", "0.9", "a", "--", "true"}},
		{"flags that exclude each other", 64, "exclude each other", []string{"run", "-n", "--wait", "1s", "a", "--", "true"}},
		{"two kinds of lock", 64, "exclude each other", []string{"run", "--shared", "--slots", "2", "a", "--", "true"}},
		{"a period for several at a time", 64, "leave out --shared", []string{"run", "--period", "1h", "--shared", "a", "--", "true"}},
		{"a period and a wait", 64, "does not wait", []string{"run", "--period", "1h", "--wait", "1s", "a", "--", "true"}},
		{"a short period", 64, "want at least 2s", []string{"run", "--period", "1s", "a", "--", "true"}},
		{"a period and a bound", 0, "", []string{"run", "--period", "1h", "--max-hold", "10m", "bounded", "--", "true"}},
		{"second run in a period", 0, "", []string{"run", "--period", "1h", "bounded", "--", "false"}},
		{"second run in a period with another code", 9, "s; try again later, or see: holdfast show bounded", []string{"run", "--period", "1h", "-E", "9", "bounded", "--", "false"}},
		{"once without --keep", 64, "--keep is missing", []string{"once", "a", "--", "true"}},
		{"once of a failure", 3, "", []string{"once", "--keep", "1h", "report", "--", "sh", "-c", "exit 3"}},
		{"once of a success", 0, "", []string{"once", "--keep", "1h", "report", "--", "true"}},
		{"once after a success", 0, "", []string{"once", "--keep", "1h", "report", "--", "false"}},
		{"once after a success, verbose", 0, "already done by", []string{"once", "-v", "--keep", "1h", "report", "--", "false"}},
		{"once of a held lock", 75, `"busy" is held by`, []string{"once", "-n", "--keep", "1h", "busy", "--", "true"}},
		{"once of a command that does not exist", 127, "command not found", []string{"once", "--keep", "1h", "a", "--", "no-such-command"}},
		{"busy code out of range", 64, "from 0 to 255", []string{"run", "-E", "256", "a", "--", "true"}},
		{"unknown signal", 64, "name of a signal", []string{"run", "--signal", "FOO", "a", "--", "true"}},
		{"unknown action", 64, "term, kill or warn", []string{"run", "--on-lost", "pray", "a", "--", "true"}},
		{"closed descriptor", 64, "is not open", []string{"run", "--json-fd", "33", "a", "--", "true"}},
		{"stdout is the child's", 64, "want 2 or more", []string{"run", "--json-fd", "1", "a", "--", "true"}},
		{"malformed URL", 64, "--store: invalid: redis URL: malformed host", []string{"run", "--store", "redis://h:port", "a", "--", "true"}},
		{"empty URL", 64, "leave out the flag", []string{"ls", "--store", ""}},
		{"path instead of a URL", 64, "such as sqlite:/", []string{"run", "--store", "./locks.db", "a", "--", "true"}},
		{"address instead of a URL", 64, `want SCHEME:…, such as "redis://127.0.0.1:6379" or "sqlite:/var/lib/locks.db"; see: holdfast run --help`, []string{"run", "--store", "127.0.0.1:6379", "a", "--", "true"}},
		{"name of a host instead of a URL", 64, `unknown scheme "localhost"; want one of etcd, etcds, mysql, `, []string{"run", "--store", "localhost:6379", "a", "--", "true"}}, // and not memory
		{"unknown scheme", 64, `unknown scheme "foo"; want one of etcd, `, []string{"run", "--store", "foo://h", "a", "--", "true"}},
		{"unknown parameter", 64, "unknown parameter", []string{"run", "--store", "sqlite:x?a=b", "a", "--", "true"}},
		{"store within one process", 64, "within one process only", []string{"run", "--store", "memory:", "a", "--", "true"}},
		{"store in another file", 64, "is not an SQLite database", []string{"run", "--store", "sqlite:" + s.path("plain"), "a", "--", "true"}},
		{"store in a missing directory", 64, "create it first", []string{"run", "--store", broken, "a", "--", "true"}},
		{"store that cannot be written", 69, "cannot open the store", []string{"run", "--store", "sqlite:/proc/locks.db", "a", "--", "true"}},
		{"busy", 75, `"busy" is held by`, []string{"run", "-n", "busy", "--", "true"}},
		{"busy without a wait", 75, `"busy" is held by`, []string{"run", "--wait", "0", "busy", "--", "true"}},
		{"busy after a wait", 75, `place 1 of 1 in the queue`, []string{"run", "-w", "0.05", "busy", "--", "true"}},
		{"busy with another code", 9, `"busy" is held by`, []string{"run", "-n", "-E", "9", "busy", "--", "true"}},
		{"busy with --busy-ok", 0, "", []string{"run", "-n", "--busy-ok", "busy", "--", "true"}},
		{"busy and quiet", 75, "", []string{"run", "-nq", "busy", "--", "true"}},
		{"busy for a shared holder", 75, `"busy" is held by`, []string{"run", "-n", "-s", "busy", "--", "true"}},
		{"not executable", 126, "permission denied", []string{"run", "a", "--", "./plain"}},
		{"not executable in PATH", 126, "permission denied", []string{"run", "a", "--", "plain"}},
		{"a directory", 126, "is a directory", []string{"run", "a", "--", "/"}},
		{"script without a first line #!", 126, "#!/bin/sh", []string{"run", "a", "--", "./noshebang"}},
		{"not found", 127, "command not found", []string{"run", "a", "--", "no-such-command"}},
		{"no such file", 127, "command not found", []string{"run", "a", "--", "./no-such-file"}},
		{"port out of range", 64, "--listen: listen tcp: address 99999: invalid port; choose a port that is free", []string{"ui", "--listen", "127.0.0.1:99999", "--store", "sqlite:" + s.path("other.db")}}, // it opens the store before
		{"doctor without a finding", 0, "", []string{"doctor"}},
		{"doctor with a warning", 1, "", []string{"doctor", "--ttl", "1us"}}, // no store is fast enough for that
		{"unknown command", 64, `unknown command "shwo" (did you mean: holdfast show?)`, []string{"shwo", "a"}},
		{"no command at all", 64, "holdfast help", nil},
		{"command like no other", 64, `unknown command "zzzzzz"; see: holdfast help`, []string{"zzzzzz"}},
		{"URL without --store", 64, `unexpected argument "redis://***@h:1/0"`, []string{"doctor", "redis://u:s3cret@h:1/0"}},
		{"URL without --store and a command", 64, `unknown command "redis://***@h"`, []string{"redis://:s3cret@h"}},
		{"URL whose password has a space and an @", 64, `unknown command "redis://***@h"`, []string{"redis://u:s3 cr@et@h"}},
		{"URL with a long password as an ID", 64, `--id "redis://***@h"`, []string{"renew", "a", "--id", "redis://u:" + strings.Repeat("s3cret", 20) + "@h"}},
		{"URL as another flag", 64, "redis://***@h", []string{"run", "--ttl", "redis://:s3cret@h", "a", "--", "true"}},
		{"flag without a command", 64, "unknown flag: --store", []string{"--store", "x"}},
		{"too many arguments", 64, `unexpected argument "b"`, []string{"show", "a", "b"}},
		{"break without an id", 64, "--id is missing", []string{"break", "busy"}},
		{"break of a free lock", 79, "no longer held under that ID: released, broken, expired, or lost by the store; see: holdfast show a", []string{"break", "a", "--id", strings.Repeat("1", 32)}},
		{"break under another id", 79, `"busy" is no longer held under that ID`, []string{"break", "busy", "--id", strings.Repeat("1", 32)}},
		{"malformed id", 64, "32 hexadecimal digits", []string{"release", "a", "--id", "1"}},
		{"renew without an id", 64, "--id is missing", []string{"renew", "a"}},
		{"bad prefix", 64, "control character", []string{"ls", "\x01"}},
		{"empty name to show", 64, "empty name", []string{"show", ""}},
		{"long name", 64, "want at most 512", []string{"acquire", strings.Repeat("x", 600)}},
		{"short bench", 64, "want a time from 100ms to 1m0s", []string{"bench", "--time", "0"}},
		{"long bench", 64, "want a time from 100ms to 1m0s", []string{"bench", "--time", "2m"}},
		{"bench without goroutines", 64, "want a number from 1 to 1024", []string{"bench", "--goroutines", "0"}},
		{"bench with too many goroutines", 64, "want a number from 1 to 1024", []string{"bench", "--goroutines", "1025"}},
		{"bench with an argument", 64, `unexpected argument "extra"`, []string{"bench", "extra"}},
		{"port alone", 64, "want an address and a port", []string{"ui", "--listen", "7117"}},
		{"short interval", 64, "want at least 100ms", []string{"ui", "--interval", "1ms"}},
		{"break without a password", 64, "HOLDFAST_UI_PASSWORD", []string{"ui", "--allow-break"}},
		{"ui with an argument", 64, `unexpected argument "extra"`, []string{"ui", "extra"}},
	} {
		t.Run(test.what, func(t *testing.T) {
			site := s
			if test.code == exitUsage || test.code == exitNotFound {
				site = &wrong
			}
			p := site.run(test.args...)
			p.t = t
			p.wantCode(test.code)
			if _, err := s.stat("none.db"); err == nil {
				t.Error("a wrong command line has created the store")
			}
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

func TestAHelpTextThatCannotBeWrittenIsAnError(t *testing.T) {
	s := newPlainSite(t)
	s.write("file", "")
	file, err := os.Open(s.path("file")) // to read only
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, args := range []string{"completion bash", "run --help", "help", "--version"} {
		p := s.command(strings.Fields(args)...)
		p.cmd.Stdout = file
		p.start().wantCode(74)
		p.wantErr("cannot write the output")
	}
}

func TestABusyMessageDescribesTheHolderAndTheQueue(t *testing.T) {
	s := newSite(t)
	holder := s.hold("backup", "--meta", "nightly \u202e run", "--ttl", "20s")
	owner := s.show("backup").Holders[0].Owner
	first := s.start("run", "backup", "--", "true")
	s.waiting("backup", 1)
	p := s.run("run", "--wait", "0.6", "backup", "--", "touch", s.path("ran")) // longer than statusDelay
	p.wantCode(75)
	p.wantErr(owner, hostname(t), `(nightly \u202e run)`, " since ", "s ago)", "s left unless renewed", "place 2 of 2 in the queue", "holdfast show backup")
	if _, err := s.stat("ran"); err == nil {
		t.Error("the command ran without the lock")
	}
	s.write("go", "")
	holder.wantCode(0)
	first.wantCode(0)
}
