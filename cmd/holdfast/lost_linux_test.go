package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guardOf finds the guard of a run, 0 if there is none.
func (s *site) guardOf(p *process) int {
	s.t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, dir := range dirs {
		stat, err1 := os.ReadFile(dir + "/stat")
		comm, err2 := os.ReadFile(dir + "/comm")
		if err1 != nil || err2 != nil || string(comm) != "hf-guard\n" {
			continue
		}
		var parent int
		var state string
		fmt.Sscan(string(stat[strings.LastIndex(string(stat), ")")+1:]), &state, &parent)
		if parent == p.cmd.Process.Pid && state != "Z" {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			return pid
		}
	}
	return 0
}

// On Linux leaving the group and the session, and losing the parent, is no way out.
func TestDescendantsThatLeftTheGroupDieOnLoss(t *testing.T) {
	s := newSite(t)
	file, err := os.Create(s.path("events.job"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// The daemon's parent ends at once; timeout(1) makes a group of its own.
	script := fmt.Sprintf(`trap '' TERM; "$@"; timeout 60 env HOLDFAST_TEST_JOB=beat '%s' '%s' child; wait`, os.Args[0], s.path("beats"))
	args := append([]string{"run", "--json-fd", "3", "--ttl", lostTTL, "a", "-c", script, "--"}, s.beatArgs("escape", "daemon")...)
	p := s.command(args...)
	p.cmd.ExtraFiles = []*os.File{file}
	p.start()
	s.beating("daemon")
	s.beating("child")
	s.hog()
	p.wantCode(79)
	for _, name := range []string{"daemon", "child"} {
		_, last := s.beats(name)
		if deadline := s.deadline("events.job"); !last.Before(deadline) {
			t.Errorf("the %s lived until %v after the deadline", name, last.Sub(deadline))
		}
		s.silent(name)
	}
}

// A process that has become another by the time that it is killed must be killed again.
func TestRunawaysAreChasedUntilNoneIsLeft(t *testing.T) {
	s := newSite(t)
	s.write("beats", "")
	// Each makes another in a session of its own, and ends. Should they get away, they end
	// with the test's directory, or soon by their number.
	s.write("runaway", `#!/bin/sh
[ -e "$DIR/beats" ] && [ $2 -lt 2000 ] || exit
echo "$1 1" >>"$DIR/beats"
setsid "$0" $1 $(($2+1)) >/dev/null 2>&1 &
`)
	p := s.start("run", "--ttl", lostTTL, "--on-lost", "kill", "a", "-c",
		`for i in 1 2 3 4; do "$DIR/runaway" r$i 1; done; touch "$DIR/began"; exec sleep 60`)
	s.exists("began")
	s.run("break", "a", "--id", s.show("a").Holders[0].ID).wantCode(0) // sooner than a deadline: they take much time
	p.wantCode(79)
	before := len(s.read("beats"))
	time.Sleep(200 * time.Millisecond)
	if after := len(s.read("beats")); after > before {
		t.Errorf("%d beats after the end", (after-before)/5)
	}
}

// Neither another group nor another session is a way out, nor the loss of a parent.
func TestDescendantsThatLeftTheGroupDieWhenTheHolderIsKilled(t *testing.T) {
	s := newSite(t)
	script := fmt.Sprintf(`"$@"; timeout 60 env HOLDFAST_TEST_JOB=beat '%s' '%s' child; true`, os.Args[0], s.path("beats"))
	p := s.start(append([]string{"run", "a", "-c", script, "--"}, s.beatArgs("escape", "daemon")...)...)
	s.beating("daemon")
	s.beating("child")
	begin := time.Now()
	p.signal(syscall.SIGKILL)
	p.wantCode(-9)
	until(t, "the guard is done", func() bool { return strings.Contains(p.err.String(), "the job was killed") })
	for _, name := range []string{"daemon", "child"} {
		s.silent(name)
		if _, last := s.beats(name); last.Sub(begin) > 5*time.Second {
			t.Errorf("the %s lived for %v", name, last.Sub(begin))
		}
	}
}

// The same when holdfast is stopped, and the guard has to act by itself.
func TestDescendantsThatLeftTheGroupDieWhenTheHolderIsStopped(t *testing.T) {
	s := newSite(t)
	p := s.start(append([]string{"run", "--ttl", lostTTL, "a", "-c", `"$@"; sleep 60`, "--"}, s.beatArgs("escape", "daemon")...)...)
	s.beating("daemon")
	p.signal(syscall.SIGSTOP)
	until(t, "the guard is done", func() bool { return strings.Contains(p.err.String(), "the job was killed") })
	s.silent("daemon")
	p.signal(syscall.SIGCONT)
	p.wantCode(79)
}

// A process that is killed closes its files first and gives away its children then. In between
// the guard sees that it is gone, and still has it as its parent.
func TestTheGuardFindsTheJobOfAHolderThatIsDying(t *testing.T) {
	s := newSite(t)
	// The job of nobody: its parent, as it were, has given it away.
	script := fmt.Sprintf(`timeout 60 env HOLDFAST_TEST_JOB=beat '%s' '%s' child; true`, os.Args[0], s.path("beats"))
	away := exec.Command("/bin/sh", "-c", `setsid sh -c 'echo $$ >"$0"; eval "$1"' "$0" "$1" </dev/null >/dev/null 2>&1 &`, s.path("pid"), script)
	if err := away.Run(); err != nil {
		t.Fatal(err)
	}
	group := strconv.Itoa(s.pid("pid"))
	s.beating("child")
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	guard := exec.Command(command, "__guard", "3", "4", group, fmt.Sprint(os.Getpid()), "loud")
	guard.ExtraFiles = []*os.File{in, out}
	var said bytes.Buffer
	guard.Stderr = &said
	err = guard.Start()
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	to.Close() // as it dies
	if err := guard.Wait(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(said.String(), "the job was killed") {
		t.Errorf("it says %q", &said)
	}
	s.silent("child")
}

// killall holdfast and pkill -f holdfast must leave somebody to end the job.
func TestTheGuardHasAnotherName(t *testing.T) {
	s := newSite(t)
	p := s.runBeats("job", "beat")
	s.beating("job")
	var guard int
	until(t, "a guard", func() bool { guard = s.guardOf(p); return guard != 0 })
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guard))
	if err != nil || strings.Contains(string(line), "holdfast") {
		t.Errorf("command line %q, %v", line, err)
	}
}

func TestTheExitCodeIsKnownThoughTheGuardWasKilled(t *testing.T) {
	s := newSite(t)
	p := s.hold("a")
	kill(s.guardOf(p))
	s.write("go", "")
	p.wantCode(0)
	p = s.start("run", "a", "-c", `touch "$DIR/began"; while [ ! -e "$DIR/go2" ]; do sleep 0.02; done; exit 7`)
	s.exists("began")
	old := s.guardOf(p)
	kill(old)
	until(t, "another guard", func() bool { g := s.guardOf(p); return g != 0 && g != old })
	s.write("go2", "")
	p.wantCode(7)
}

// A run of which nobody is left has nobody to end the job; but that is two murders.
func TestAGuardThatIsKilledIsReplaced(t *testing.T) {
	s := newSite(t)
	p := s.runBeats("job", "beat")
	s.beating("job")
	old := s.guardOf(p)
	kill(old)
	var replaced int
	until(t, "another guard", func() bool { replaced = s.guardOf(p); return replaced != 0 && replaced != old })
	p.signal(syscall.SIGKILL)
	p.wantCode(-9)
	until(t, "the new guard is done", func() bool { return dead(replaced) })
	s.silent("job")
}
