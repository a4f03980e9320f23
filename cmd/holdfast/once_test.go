//go:build unix

package main

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// The other hosts start the job within half a period. After that, the lock is free for the next one.
func TestALockIsClosedForHalfOfThePeriodAlsoAfterMaxHold(t *testing.T) {
	s := newSite(t)
	s.ok("run", "--period", "1h", "quick", "--", "true")
	p := s.run("run", "--period", "1h", "--max-hold", "4s", "ended", "-c", `trap 'exit 0' TERM; sleep 60 & wait`)
	p.wantCode(79)
	p.wantErrParts("held for the 4s of --max-hold", "SIGTERM", "allow it more time with --max-hold")
	if strings.Contains(p.err.String(), "check the store") {
		t.Errorf("the store is not the reason: %s", &p.err)
	}
	for _, name := range []string{"quick", "ended"} {
		l := s.show(name)
		if len(l.Holders) != 1 || l.Holders[0].State != "cooling" || l.Holders[0].Left < 1700 || l.Holders[0].Left > 1800 {
			t.Errorf("afterwards: %+v", l)
		}
	}
}

func TestOnceRunsAJobUntilItSucceeds(t *testing.T) {
	s := newSite(t)
	const hosts = 5
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for range hosts {
		all.Go(func() {
			// The first two runs fail. The other hosts wait for the result.
			p := s.command("once", "--keep", "1h", "report", "-c", `echo run >>"$DIR/runs"; [ $(wc -l <"$DIR/runs") -gt 2 ] || exit 4; sleep 0.2`)
			p.cmd.Run()
			mu.Lock()
			defer mu.Unlock()
			codes[p.code()]++
		})
	}
	all.Wait()
	if n := strings.Count(s.read("runs"), "run"); n != 3 {
		t.Errorf("%d runs, want two that fail and one that succeeds", n)
	}
	if codes[4] != 2 || codes[0] != hosts-2 {
		t.Errorf("exit codes %v", codes)
	}
	l := s.show("report")
	if len(l.Holders) != 1 || l.Holders[0].State != "done" || l.Holders[0].Left < 3500 {
		t.Errorf("afterwards: %+v", l)
	}
}

func TestOnceDoesNotRecordAJobThatWasKilled(t *testing.T) {
	s := newSite(t)
	for name, harm := range map[string]func(p *process){
		"with holdfast": func(p *process) { p.signal(syscall.SIGKILL) },
		"by a signal":   func(p *process) { p.signal(syscall.SIGTERM) },
		"after a break": func(p *process) {
			s.ok("break", "after a break", "--id", s.look("after a break").Holders[0].ID.String())
		},
		"after its timeout": func(*process) {},
	} {
		limit := "1h"
		if name == "after its timeout" {
			limit = "8s"
		}
		p := s.start("once", "--keep", "1h", "--ttl", lostTTL, "--max-hold", limit, name, "-c", `touch "$DIR/$HOLDFAST_NAME"; exec sleep 60`)
		s.exists(name)
		harm(p)
		if code := p.wait(); code == 0 {
			t.Errorf("%s: exit code 0", name)
		}
		if p := s.run("once", "--keep", "1h", name, "--", "sh", "-c", "exit 6"); p.code() != 6 {
			t.Errorf("%s: the next job does not run: exit code %d, %s", name, p.code(), &p.err)
		}
	}
}

// The job will run again, so this is not a success.
func TestOnceFailsIfASuccessCannotBeRecorded(t *testing.T) {
	s := newSite(t)
	server := servers.StartRedis(t, servers.RedisOptions{})
	s.env = append(s.env, "HOLDFAST_STORE=redis://"+server.Addr())
	p := s.start("once", "--keep", "1h", "report", "-c", `touch "$DIR/began"; while [ ! -e "$DIR/go" ]; do sleep 0.02; done`)
	s.exists("began")
	server.Kill()
	s.write("go", "")
	p.wantCode(69)
	p.wantErrParts("could not be recorded")
}

func TestForgetLetsOnceRunACommandAgain(t *testing.T) {
	s := newSite(t)
	once := []string{"once", "--keep", "1h", "a", "-c", `echo run >>"$DIR/runs"`}
	s.ok(once...)
	s.ok(once...)
	p := s.run("forget", "a")
	p.wantCode(0)
	p.wantErr(`"a" is open again`)
	s.ok(once...)
	if runs := s.read("runs"); runs != "run\nrun\n" {
		t.Errorf("runs: %q, want two", runs)
	}
	holder := s.hold("held")
	p = s.run("forget", "unknown")
	p.wantCode(0)
	p.wantErr("nothing to forget", `"unknown"`)
	p = s.run("forget", "held")
	p.wantCode(exitBusy)
	p.wantErr("held by", "holdfast break")
	s.ok("run", "--period", "1h", "period", "-c", "true")
	p = s.run("forget", "period")
	p.wantCode(exitBusy)
	p.wantErr(`"period"`, "holdfast break")
	s.held("held")
	holder.signal(syscall.SIGKILL)
}
