package main

import (
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

// guardOf returns the process ID of the guard of a run, or 0 if there is none.
func (s *site) guardOf(p *process) int {
	s.t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		comm, _ := os.ReadFile(dir + "/comm")
		if state, parent := processState(pid); string(comm) == "hf-guard\n" && parent == p.cmd.Process.Pid && state != "Z" {
			return pid
		}
	}
	return 0
}

// The daemon has another session and no parent; timeout(1) creates a group of its own.
func TestDescendantsThatLeftTheGroupDieOnLoss(t *testing.T) {
	s := newSite(t)
	script := fmt.Sprintf(`trap '' TERM; "$@"; timeout 60 env HOLDFAST_TEST_JOB=beat '%s' '%s' child; wait`, os.Args[0], s.path("beats"))
	p := s.runLogged("job", append([]string{"a", "-c", script, "--"}, s.beatArgs("escape", "daemon")...)...)
	s.beating("daemon")
	s.beating("child")
	s.hog()
	p.wantCode(79)
	for _, name := range []string{"daemon", "child"} {
		s.wasEndedInTime(name)
	}
}

// Each process starts another one in a session of its own, and ends.
func TestProcessesThatKeepForkingAreAllKilled(t *testing.T) {
	s := newSite(t)
	s.write("beats", "")
	// Processes that escape end when the directory of the test is removed, or when they have
	// counted to their limit.
	s.write("runaway", `#!/bin/sh
[ -e "$DIR/beats" ] && [ $2 -lt 2000 ] || exit
echo "$1 1" >>"$DIR/beats"
setsid "$0" $1 $(($2+1)) >/dev/null 2>&1 &
`)
	p := s.start("run", "--ttl", lostTTL, "--on-lost", "kill", "a", "-c",
		`for i in 1 2 3 4; do "$DIR/runaway" r$i 1; done; touch "$DIR/began"; exec sleep 60`)
	s.exists("began")
	s.run("break", "a", "--id", s.show("a").Holders[0].ID).wantCode(0) // quicker than waiting for the deadline
	p.wantCode(79)
	before := len(s.read("beats"))
	time.Sleep(200 * time.Millisecond)
	if after := len(s.read("beats")); after > before {
		t.Errorf("%d beats after the end", (after-before)/5)
	}
}

func TestDescendantsThatLeftTheGroupDieWhenTheHolderIsKilled(t *testing.T) {
	s := newSite(t)
	script := fmt.Sprintf(`timeout 60 env HOLDFAST_TEST_JOB=beat '%s' '%s' child; true`, os.Args[0], s.path("beats"))
	p := s.start("run", "a", "-c", script)
	s.beating("child")
	begin := time.Now()
	p.signal(syscall.SIGKILL)
	p.wantCode(-9)
	until(t, "the guard is done", func() bool { return strings.Contains(p.err.String(), "the job was killed") })
	s.silent("child")
	if _, last := s.beats("child"); last.Sub(begin) > 5*time.Second {
		t.Errorf("the child lived for %v", last.Sub(begin))
	}
}

func TestAGuardThatIsKilledIsReported(t *testing.T) {
	s := newSite(t)
	p := s.start("run", "a", "-c", `touch "$DIR/began"; while [ ! -e "$DIR/go" ]; do sleep 0.02; done; exit 7`)
	s.exists("began")
	kill(s.guardOf(p))
	until(t, "a warning", func() bool { return strings.Contains(p.err.String(), "the guard of the job was killed") })
	s.write("go", "")
	p.wantCode(7)
}

// The lock itself lasts for its TTL, and the store is not the reason.
func TestAJobThatTheGuardEndsAfterMaxHoldIsNotLate(t *testing.T) {
	s := newSite(t)
	p := s.start("run", "--max-hold", "4s", "a", "-c", `touch "$DIR/began"; exec sleep 60`)
	s.exists("began")
	guard := s.guardOf(p)
	p.signal(syscall.SIGSTOP)
	until(t, "holdfast is stopped", func() bool { state, _ := processState(p.cmd.Process.Pid); return state == "T" })
	syscall.Kill(guard, syscall.SIGSTOP) // holdfast would continue it
	time.Sleep(4200 * time.Millisecond)
	syscall.Kill(guard, syscall.SIGCONT)
	until(t, "the message of the guard", func() bool { return strings.Contains(p.err.String(), "the job was killed") })
	p.signal(syscall.SIGCONT)
	p.wantCode(79)
	p.wantErrParts("killed before another holder could acquire the lock", "held for the 4s of --max-hold", "allow it more time")
}

// A killed process first loses its files and then its children. In between, the guard sees that
// holdfast has ended, but is still the child of holdfast.
func TestTheGuardFindsTheJobOfAHolderThatIsDying(t *testing.T) {
	s := newSite(t)
	// The job has already lost its parent.
	script := fmt.Sprintf(`timeout 60 env HOLDFAST_TEST_JOB=beat '%s' '%s' child; true`, os.Args[0], s.path("beats"))
	away := exec.Command("/bin/sh", "-c", `setsid sh -c 'echo $$ >"$0"; eval "$1"' "$0" "$1" </dev/null >/dev/null 2>&1 &`, s.path("pid"), script)
	if err := away.Run(); err != nil {
		t.Fatal(err)
	}
	group := s.pid("pid")
	s.beating("child")
	guard := startGuard(t, group, os.Getpid())
	guard.to.Close()
	if err := guard.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(guard.err.String(), "the job was killed") {
		t.Errorf("stderr of the guard: %q", &guard.err)
	}
	s.silent("child")
}

func TestKillallAndPkillOfHoldfastSpareTheGuard(t *testing.T) {
	s := newSite(t)
	p := s.runBeats("job")
	s.beating("job")
	var guard int
	until(t, "a guard", func() bool { guard = s.guardOf(p); return guard != 0 })
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", guard))
	if err != nil || strings.Contains(string(line), "holdfast") {
		t.Errorf("command line %q, %v", line, err)
	}
}
