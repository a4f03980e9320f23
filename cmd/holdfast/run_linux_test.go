package main

import (
	"fmt"
	"strings"
	"testing"
)

// Nothing of ours may stay open in the job: a daemon that it starts would keep it.
func TestTheJobInheritsNoFileOfOurs(t *testing.T) {
	s := newSite(t)
	out := s.ok("run", "--json-fd", "2", "a", "-c", "ls -l /proc/$$/fd | grep -v -e 'pipe:' -e /dev/null -e /proc/ -e '^total'; true")
	if strings.TrimSpace(out) != "" {
		t.Errorf("open in the job:\n%s", out)
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
			t.Errorf("process %d of %q still lives", pid, s.read("family"))
		}
	}
	if n := len(strings.Fields(s.read("family"))); n < 2 {
		t.Errorf("saw %d processes, want the job and the guard at least", n)
	}
}
