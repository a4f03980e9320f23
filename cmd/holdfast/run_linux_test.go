package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// A daemon that the job starts would keep such files open.
func TestTheJobInheritsNoFileThatHoldfastHasOpened(t *testing.T) {
	s := newSite(t)
	const list = "ls /proc/$$/fd; true"
	inherited, err := exec.Command("/bin/sh", "-c", list).Output()
	if err != nil {
		t.Fatal(err)
	}
	if out := s.ok("run", "--json-fd", "2", "a", "-c", list); out != string(inherited) {
		t.Errorf("files open in the job: %q, want %q", out, inherited)
	}
}

func TestNoProcessIsLeftAfterARun(t *testing.T) {
	s := newSite(t)
	p := s.start("run", "a", "-c", `echo $PPID $(ps -o pid= --ppid $PPID) >"$DIR/family"; exit 0`)
	p.wantCode(0)
	for _, field := range strings.Fields(s.read("family")) {
		var pid int
		fmt.Sscan(field, &pid)
		if !dead(pid) {
			t.Errorf("process %d of %q is still running", pid, s.read("family"))
		}
	}
	if n := len(strings.Fields(s.read("family"))); n < 2 {
		t.Errorf("saw %d processes, want at least the job and the guard", n)
	}
}
