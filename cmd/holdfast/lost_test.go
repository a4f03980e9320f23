//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lostTTL is short enough for tests to wait for it, and long enough that no lock is lost
// because the machine is busy.
const lostTTL = "8s"

// runLogged starts a run with a short TTL. Its events go to a file.
func (s *site) runLogged(name string, args ...string) *process {
	s.t.Helper()
	file, err := os.Create(s.path("events." + name))
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	p := s.command(append([]string{"run", "--json-fd", "3", "--ttl", lostTTL}, args...)...)
	p.cmd.ExtraFiles = []*os.File{file}
	return p.start()
}

// runBeats is like runLogged, with a job that ignores requests to end.
func (s *site) runBeats(name string, flags ...string) *process {
	s.t.Helper()
	return s.runLogged(name, append(append(flags, "a", "--"), s.beatArgs("beat", name)...)...)
}

func TestAJobIsDeadBeforeTheDeadlineIfItsLockCannotBeRenewed(t *testing.T) {
	for _, test := range []struct {
		how  string
		harm func(s *site)
		says string
	}{
		{"the file is replaced", func(s *site) {
			s.write("other", "")
			if err := os.Rename(s.path("other"), s.path("locks.db")); err != nil {
				s.t.Fatal(err)
			}
		}, "replaced"},
		{"another process blocks it", func(s *site) { s.hog() }, "could not be renewed in time"},
	} {
		t.Run(test.how, func(t *testing.T) {
			s := newSite(t)
			p := s.runBeats("job")
			s.beating("job")
			test.harm(s)
			p.wantCode(79)
			s.wasEndedInTime("job")
			p.wantErrParts(test.says, "sent SIGTERM to the job, SIGKILL follows in ", `lost "a": it could not be renewed in time`, "ended by SIGKILL")
			if got := kinds(s.events(s.read("events.job"))); !strings.Contains(got, "ending killed lost") {
				t.Errorf("events: %s", got)
			}
		})
	}
}

// wasEndedInTime checks that a process of the job ended before the last deadline in the events of the job.
func (s *site) wasEndedInTime(name string) {
	s.t.Helper()
	var deadline time.Time
	for _, e := range s.events(s.read("events.job")) {
		if e.End != nil && e.End.After(deadline) {
			deadline = *e.End
		}
	}
	if _, last := s.beats(name); !last.Before(deadline) {
		s.t.Errorf("%s lived until %v after the deadline, %v", name, last.Sub(deadline), deadline)
	}
	s.silent(name)
}

// hog acquires the write lock of SQLite and keeps it. Its file format defines that lock as a byte of locks.db-shm.
func (s *site) hog() {
	s.t.Helper()
	f, err := os.OpenFile(s.path("locks.db-shm"), os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { f.Close() })
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 120, Len: 1}
	until(s.t, "the store's lock", func() bool { return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock) == nil })
}

func TestAJobThatLosesItsLockIsToldAsAskedFor(t *testing.T) {
	const (
		cleanUp = `trap 'echo TERM; exit 0' TERM; trap 'echo USR1; exit 0' USR1; touch "$DIR/began"; sleep 60 & wait`
		goOn    = `trap 'echo asked' TERM; touch "$DIR/began"; while [ ! -e "$DIR/go" ]; do sleep 0.01; done; echo done`
	)
	hog := func(s *site, _ *process) { s.hog() }
	for what, test := range map[string]struct {
		flags, job string
		harm       func(s *site, p *process)
		out        string
		says       []string // if nil, stderr is not read
	}{
		"a signal":                   {"--signal USR1 --grace 1.2", cleanUp, hog, "USR1\n", []string{"sent SIGUSR1 to the job", "the job exited with 0"}},
		"messages that are not read": {"--grace 1.2", cleanUp, hog, "TERM\n", nil},
		"kill":                       {"--on-lost kill", goOn, hog, "", []string{"ended by SIGKILL"}},
		"kill after a break": {"--on-lost kill --max-hold 6s", goOn, func(s *site, p *process) {
			id := s.show("a").Holders[0].ID
			brk := s.run("break", "a", "--id", id)
			brk.wantCode(0)
			brk.wantErr(`broke "a"`, "its former holder may still be running")
			p.wantCode(79)
			s.run("break", "a", "--id", id).wantCode(79)
		}, "", []string{"forcibly released", "ended by SIGKILL", "check the store"}},
		"warn": {"--on-lost warn", goOn, func(s *site, p *process) {
			s.hog()
			until(s.t, "a warning", func() bool { return strings.Contains(p.err.String(), "the job continues without it") })
			s.write("go", "")
		}, "done\n", []string{"the job exited with 0"}},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			p := s.command(append(append([]string{"run", "--ttl", lostTTL}, strings.Fields(test.flags)...), "a", "-c", test.job)...)
			if test.says == nil {
				p.cmd.Stderr = stalledPipe(t)
			}
			p.start()
			s.exists("began")
			test.harm(s, p)
			p.wantCode(79)
			p.wantErrParts(test.says...)
			if p.out.String() != test.out {
				t.Errorf("stdout: %q, want %q", &p.out, test.out)
			}
		})
	}
}

// The job ran under its lock, so holdfast returns its exit code.
func TestALockThatCannotBeReleasedIsReported(t *testing.T) {
	for _, command := range [][]string{{"run"}, {"once", "--keep", "1h"}} {
		t.Run(command[0], func(t *testing.T) {
			s := newSite(t)
			p := s.start(append(command, "--json", "a", "-c", `while [ ! -e "$DIR/go" ]; do sleep 0.01; done; exit 3`)...)
			s.held("a")
			s.hog()
			s.write("go", "")
			p.wantCode(3)
			events := s.events(p.err.String())
			last := events[len(events)-1]
			if got := kinds(events); got != "acquired started" {
				t.Errorf("events besides errors: %s", got)
			}
			if !strings.HasPrefix(last.Message, `"a" could not be released, and expires within 30s`) || last.Code == nil || *last.Code != 3 {
				t.Errorf("last event: %+v", last)
			}
		})
	}
}

func TestAJobWhoseLockWasBrokenHasNotSucceeded(t *testing.T) {
	for _, code := range []string{"0", "4"} {
		for _, command := range [][]string{{"run"}, {"once", "--keep", "1h"}} {
			t.Run(command[0]+" exit "+code, func(t *testing.T) {
				s := newSite(t)
				p := s.start(append(command, "a", "-c", `while [ ! -e "$DIR/go" ]; do sleep 0.01; done; exit `+code)...)
				s.held("a")
				s.run("break", "a", "--id", s.show("a").Holders[0].ID).wantCode(0)
				s.write("go", "")
				p.wantCode(79)
				p.wantErr(`lost "a": the grant is gone`, "forcibly released", "the job exited with "+code)
				if strings.Contains(p.err.String(), errFailed.Error()) {
					t.Errorf("stderr says twice that the job failed: %s", &p.err)
				}
			})
		}
	}
}

func TestAJobIsDeadBeforeTheLockOfItsHolderIsFree(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(sig.String(), func(t *testing.T) {
			s := newSite(t)
			first := s.runBeats("first")
			s.beating("first")
			second := s.runBeats("second")
			s.waiting("a", 1)
			if sig == syscall.SIGSTOP {
				// Stop it right after a renewal. A process that is stopped during a renewal would block the
				// file for all other processes.
				before := strings.Count(s.read("events.first"), "renewed")
				until(t, "a renewal", func() bool { return strings.Count(s.read("events.first"), "renewed") > before })
			}
			harmed := time.Now()
			first.signal(sig)
			s.beating("second")
			s.silent("first")
			_, last := s.beats("first")
			if begin, _ := s.beats("second"); !last.Before(begin) {
				t.Errorf("the first job beat until %v after the second had begun", last.Sub(begin))
			}
			if sig == syscall.SIGKILL {
				first.wantCode(-9)
				for _, e := range s.events(s.read("events.second")) {
					if d := e.Time.Sub(harmed); e.Event == "acquired" && d > 12*time.Second {
						t.Errorf("the lock was free after %v", d)
					}
				}
				until(t, "the message of the guard", func() bool { return strings.Contains(first.err.String(), "holdfast was killed: the job was killed") })
			} else {
				first.signal(syscall.SIGCONT)
				first.wantCode(79)
				first.wantErrParts("holdfast was stopped, or hangs: the job was killed", `lost "a"`)
			}
			second.signal(syscall.SIGKILL)
		})
	}
}
