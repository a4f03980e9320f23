//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestEverySignalReachesTheJob(t *testing.T) {
	s := newSite(t)
	p := s.start("run", "a", "--", "env", "HOLDFAST_TEST_JOB=catch", os.Args[0], s.path("got"))
	s.exists("got")
	signals := []syscall.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGVTALRM, syscall.SIGXCPU, syscall.SIGIO,
	}
	if runtime.GOOS == "linux" {
		signals = append(signals, 30, 35, 50, 64)
	}
	for _, sig := range append(signals, syscall.SIGTERM) {
		p.signal(sig)
		until(t, sig.String()+" reaches the job", func() bool { return strings.Contains(s.read("got"), fmt.Sprintf("<%d>", int(sig))) })
	}
	p.wantCode(5)
}

func TestASignalReachesTheWholeGroup(t *testing.T) {
	s := newSite(t)
	p := s.start("run", "a", "-c", `sleep 60 & echo $! >"$DIR/child"; wait`)
	child := s.pid("child")
	p.signal(syscall.SIGTERM)
	p.wantCode(128 + 15)
	until(t, "the grandchild ends", func() bool { return dead(child) })
	if p.err.String() != "" {
		t.Errorf("stderr: %s", &p.err)
	}
	s.run("run", "-n", "a", "--", "true").wantCode(0) // released
}

func TestASignalEndsTheWaitAtOnce(t *testing.T) {
	s := newPlainSite(t)
	holder := s.hold("a")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		for _, p := range []*process{s.command("run", "-v", "a", "--", "touch", s.path("ran")), s.command("acquire", "a")} {
			p.start()
			s.waiting("a", 1)
			p.signal(syscall.SIGWINCH) // does not end the wait
			p.signal(sig)
			p.wantCode(128 + int(sig))
			if p.cmd.Args[1] == "run" {
				p.wantErrParts("left the queue")
			}
			if n := len(s.show("a").Waiters); n != 0 {
				t.Errorf("after %v: %d waiters", sig, n)
			}
		}
		p := s.start("run", "a", "--", "touch", s.path("ran"))
		s.waiting("a", 1)
		p.signal(sig)
		// As systemd and terminals do. Either can arrive first, and the process may end between the two.
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		if code := p.wait(); code != 128+int(sig) && code != 128+int(syscall.SIGHUP) {
			t.Errorf("after %v and SIGHUP: exit code %d", sig, code)
		}
		if n := len(s.show("a").Waiters); n != 0 {
			t.Errorf("after %v and SIGHUP: %d waiters", sig, n)
		}
	}
	s.write("go", "")
	holder.wantCode(0)
	if _, err := s.stat("ran"); err == nil {
		t.Error("a job was started after a signal")
	}
}

// A signal either ends holdfast before the job begins, or it reaches the job. In both cases the
// lock is released.
func TestNoSignalIsLostWhileTheJobStarts(t *testing.T) {
	s := newPlainSite(t)
	for i := range 30 {
		// The job has no child: a shell that gets the signal just before it starts one leaves it behind.
		p := s.start("run", "--json", "a", "-c", `trap 'exit 9' TERM; while :; do :; done`)
		// The signal arrives later in each run. So it arrives while the Go runtime starts, the
		// lock is acquired, the guard is started, or the job is executed and sets its trap.
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		p.signal(syscall.SIGTERM)
		switch code := p.wait(); code {
		case 9, 128 + 15: // with or without the trap
		case -15: // before holdfast catches signals
			if p.err.String() != "" {
				t.Errorf("ended by the signal after it has printed %s", &p.err)
			}
		default:
			t.Errorf("exit code %d: %s", code, &p.err)
		}
		s.run("run", "-n", "a", "--", "true").wantCode(0)
	}
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	s := newSite(t)
	s.write("wrap", "#!/bin/sh\ntrap '' HUP INT\nexec \"$@\"\n")
	p := s.command("run", "a", "-c", `touch "$DIR/ready"; while [ ! -e "$DIR/go" ]; do sleep 0.01; done; exit 4`)
	p.cmd.Args = append([]string{s.path("wrap"), p.cmd.Path}, p.cmd.Args[1:]...)
	p.cmd.Path = s.path("wrap")
	p.start()
	s.exists("ready")
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGINT)
	s.write("go", "")
	p.wantCode(4)
}
