//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestTheJobGetsTheVariablesOfItsLockOnly(t *testing.T) {
	s := newSite(t)
	s.env = append(s.env, "HOLDFAST_TOKEN=1", "HOLDFAST_NAME=other", "HOLDFAST_OWNER=other", "HOLDFAST_DEADLINE=1", "HOLDFAST_ID=other", "OTHER=kept")
	before := time.Now()
	out := s.ok("run", "the lock", "--", "env")
	var ours []string
	vars := make(map[string]string)
	for line := range strings.SplitSeq(out, "\n") {
		name, value, _ := strings.Cut(line, "=")
		if strings.HasPrefix(name, "HOLDFAST_") && name != "HOLDFAST_STORE" {
			ours = append(ours, name)
		}
		vars[name] = value
	}
	if len(ours) != 5 {
		t.Errorf("variables: %v, want each of the five once", ours)
	}
	if vars["HOLDFAST_NAME"] != "the lock" || vars["OTHER"] != "kept" {
		t.Errorf("environment: %s", out)
	}
	if !regexp.MustCompile(`^[1-9][0-9]+$`).MatchString(vars["HOLDFAST_TOKEN"]) || !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(vars["HOLDFAST_ID"]) {
		t.Errorf("token and id: %s", out)
	}
	if !strings.HasPrefix(vars["HOLDFAST_OWNER"], hostname(t)+"/") {
		t.Errorf("owner %q", vars["HOLDFAST_OWNER"])
	}
	var deadline int64
	fmt.Sscan(vars["HOLDFAST_DEADLINE"], &deadline)
	if d := time.Unix(deadline, 0).Sub(before); d < 20*time.Second || d > 35*time.Second+time.Since(before) {
		t.Errorf("deadline in %v", d)
	}
}

func TestStdinAndOtherFilesPassThrough(t *testing.T) {
	s := newSite(t)
	p := s.command("run", "a", "-c", "cat; cat <&3; echo to stderr >&2")
	p.cmd.Stdin = strings.NewReader("from stdin\n")
	extra, err := os.Open("testdata/extra.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	p.cmd.ExtraFiles = []*os.File{extra}
	p.start().wantCode(0)
	if p.out.String() != "from stdin\nfrom file 3\n" || p.err.String() != "to stderr\n" {
		t.Errorf("stdout %q, stderr %q", &p.out, &p.err)
	}
}

func TestArgumentsReachTheJobAsTheyAre(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		args []string
		out  string
	}{
		{[]string{"--", "echo", "$HOME", "*", "a  b", ";", "exit"}, "$HOME * a  b ; exit\n"}, // without a shell
		{[]string{"-c", `echo "$0 $1 $#" | tr a-z A-Z`, "--", "x y", "z"}, "SH X Y 2\n"},
		{[]string{"--", "echo", "x", "--help"}, "x --help\n"},
		{[]string{"--", "echo", "-h", "--version", "-n"}, "-h --version -n\n"},
		{[]string{"--", "echo", "--wait", "soon", "--no-such-flag", "--", "-x"}, "--wait soon --no-such-flag -- -x\n"},
		{[]string{"--", "echo", "run", "a", "--", "b"}, "run a -- b\n"},
		{[]string{"-c", `echo "$@"`, "--", "--help", "-n"}, "--help -n\n"},
	} {
		if out := s.ok(append([]string{"run", "a"}, test.args...)...); out != test.out {
			t.Errorf("%q: %q, want %q", test.args, out, test.out)
		}
	}
}

func TestSharedHoldersCoexistAndSlotsAreLimited(t *testing.T) {
	s := newSite(t)
	reader := s.hold("book", "--shared")
	s.run("run", "-n", "--shared", "book", "--", "true").wantCode(0)
	s.run("run", "-n", "book", "--", "true").wantCode(75)
	one := s.hold("gpu", "--slots", "2", "--meta", "first")
	s.run("run", "-n", "--slots", "2", "gpu", "--", "true").wantCode(0)
	two := s.start("run", "--slots", "2", "gpu", "-c", `touch "$DIR/second"; while [ ! -e "$DIR/go" ]; do sleep 0.02; done`)
	s.exists("second")
	s.run("run", "-n", "--slots", "2", "gpu", "--", "true").wantCode(75)
	p := s.run("run", "-n", "--slots", "3", "gpu", "--", "true")
	p.wantCode(64)
	p.wantErr("must use the same limit")
	s.write("go", "")
	for _, p := range []*process{reader, one, two} {
		p.wantCode(0)
	}
}

func TestMinHoldKeepsTheLockClosedAfterAQuickJob(t *testing.T) {
	s := newSite(t)
	s.run("run", "--min-hold", "1h", "quick", "--", "true").wantCode(0)
	p := s.run("run", "-n", "quick", "--", "true")
	p.wantCode(75)
	p.wantErr("in cool-down after release by", "free again in ")
	// A job that did not start leaves the lock free.
	s.run("run", "--min-hold", "1h", "none", "--", "./no-such-file").wantCode(127)
	s.write("noshebang", "echo\n")
	s.run("run", "--min-hold", "1h", "none", "--", "./noshebang").wantCode(126)
	s.run("run", "-n", "none", "--", "true").wantCode(0)
}

func TestEventsAreNeverInTheOutputOfTheJob(t *testing.T) {
	s := newSite(t)
	p := s.run("run", "--json", "a", "-c", "echo output; exit 3")
	p.wantCode(3)
	if p.out.String() != "output\n" {
		t.Errorf("stdout %q", &p.out)
	}
	events := s.events(p.err.String())
	if got := kinds(events); got != "acquired started released" {
		t.Fatalf("events: %s", got)
	}
	if e := events[0]; e.Name != "a" || e.Token == 0 || len(e.ID) != 32 || e.Waited == nil || e.End == nil || e.Time.IsZero() {
		t.Errorf("acquired: %+v", e)
	}
	if e := events[2]; e.Code == nil || *e.Code != 3 {
		t.Errorf("released: %+v", e)
	}

	// With another descriptor, messages stay on stderr, and the job does not inherit that
	// descriptor.
	file, err := os.Create(filepath.Join(s.dir, "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	holder := s.hold("b", "--meta", "m")
	p = s.command("run", "-n", "--json-fd", "3", "b", "--", "true")
	p.cmd.ExtraFiles = []*os.File{file}
	p.start().wantCode(75)
	p.wantErr(`"b" is held by`)
	events = s.events(s.read("events"))
	if got := kinds(events); got != "busy" {
		t.Fatalf("events: %s", got)
	}
	if e := events[0]; len(e.Holders) != 1 || e.Holders[0].Meta != "m" || *e.Code != 75 || !strings.Contains(e.Message, "held by") {
		t.Errorf("busy: %+v", e)
	}
	p = s.command("run", "--json-fd", "3", "a", "-c", "echo mine >&3")
	p.cmd.ExtraFiles = []*os.File{file}
	p.start().wait()
	if strings.Contains(s.read("events"), "mine") {
		t.Error("the job wrote into the events")
	}
	s.write("go", "")
	holder.wantCode(0)
}

func TestProcessesThatAJobLeavesBehindContinue(t *testing.T) {
	s := newSite(t)
	p := s.run("run", "a", "-c", `(echo $$; sleep 60) >"$DIR/out" 2>&1 & echo $! >"$DIR/pid"`)
	p.wantCode(0)
	pid := s.pid("pid")
	defer kill(pid)
	if dead(pid) {
		t.Error("the process in the background was killed")
	}
	s.run("run", "-n", "a", "--", "true").wantCode(0)
}

func TestTheDefaultStoreIsCreated(t *testing.T) {
	s := newSite(t)
	s.env = append(s.env, "HOLDFAST_STORE=", "XDG_STATE_HOME="+s.path("state"), "HOME="+s.path("home"))
	s.run("run", "a", "--", "true").wantCode(0)
	info, err := s.stat("state/holdfast/locks.db")
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("store: %v %v", info, err)
	}
	if info, err := s.stat("state/holdfast"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v", info, err)
	}
	s.env = append(s.env, "XDG_STATE_HOME=")
	s.run("run", "a", "--", "true").wantCode(0)
	if _, err := s.stat("home/.local/state/holdfast/locks.db"); err != nil {
		t.Error(err)
	}
	s.env = append(s.env, "HOME=")
	p := s.run("run", "a", "--", "true")
	p.wantCode(64)
	p.wantErr("--store or HOLDFAST_STORE")
}

// A job that waits for its own lock waits forever.
func TestAJobThatWaitsForItsOwnLockIsWarned(t *testing.T) {
	s := newSite(t)
	p := s.run("run", "a", "--", command, "run", "--wait", "1", "a", "--", "true")
	p.wantCode(75)
	p.wantErrParts(`waiting for "a", which is held by the job that started this command`)
	// There is no warning for a lock of that name with another holder.
	holder := s.hold("b")
	p = s.run("run", "a", "--", "env", "HOLDFAST_NAME=b", command, "run", "--wait", "1", "b", "--", "true")
	p.wantCode(75)
	p.wantErr(`"b" is held by`)
	s.write("go", "")
	holder.wantCode(0)
}
