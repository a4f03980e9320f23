//go:build unix

package job

import (
	"os"
	"syscall"
	"time"
)

// Release lets the job begin. The event Started or Failed follows.
func (j *Job) Release() {
	j.terminal.start()
	j.gate.Write([]byte{1})
	j.gate.Close()
}

// Abandon ends a job that was not released, and so never begins.
func (j *Job) Abandon() {
	j.gate.Close()
	j.Close(false)
}

// Extend moves the time at which the guard kills the job.
func (j *Job) Extend(kill time.Time) {
	j.mu.Lock() // keeps the messages in order
	defer j.mu.Unlock()
	if j.guard != nil {
		j.guard.tell(message(kill))
	}
}

// Forward sends a signal to the group, as a terminal does.
func (j *Job) Forward(sig os.Signal) {
	if sig == syscall.SIGCONT && j.terminal.foreground() && !j.terminal.given {
		j.terminal.start() // holdfast is back in the foreground
	}
	if s, ok := sig.(syscall.Signal); ok {
		syscall.Kill(-j.group, s)
	}
}

// Terminate sends a signal to all processes of the job, and continues those that are stopped.
func (j *Job) Terminate(sig syscall.Signal) {
	f := j.family()
	f.signal(sig)
	f.signal(syscall.SIGCONT)
}

// Kill kills all processes that the job started, and returns when they have ended. The error
// names a process that could not be killed.
func (j *Job) Kill() error { return j.family().kill(time.Now().Add(killTime)) }

// Alive reports whether a process that the job started is still running.
func (j *Job) Alive() bool { return j.family().alive() }

// Suspend handles a job that was stopped. A job that stopped only because it lacked the terminal
// gets the terminal and continues. Otherwise holdfast calls before and stops too, so that the
// shell notices. When holdfast is continued, it continues the job.
func (j *Job) Suspend(by syscall.Signal, before func()) {
	t := j.terminal
	if (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && t.foreground() {
		t.give() // the job needs the terminal, which holdfast has
		syscall.Kill(-j.group, syscall.SIGCONT)
		return
	}
	if t.fd < 0 {
		return // not stopped from a terminal: another process will continue it
	}
	before()
	had := t.given
	t.take()
	stopSelf(j.signals)
	if t.foreground() {
		if had {
			t.give()
		} else {
			t.start()
		}
	}
	syscall.Kill(-j.group, syscall.SIGCONT)
}

// Close ends the guard, takes back the terminal, and reports whether the job had the terminal.
// If restore is set, it restores the modes of the terminal.
func (j *Job) Close(restore bool) (hadTerminal bool) {
	j.mu.Lock()
	g := j.guard
	j.guard = nil // its end is expected
	j.mu.Unlock()
	if g != nil {
		g.tell(done)
		g.close()
		select {
		case <-g.gone:
		case <-time.After(time.Second): // the guard is stopped
			syscall.Kill(g.pid, syscall.SIGKILL)
		}
	}
	hadTerminal = j.terminal.given
	j.terminal.take()
	if restore {
		j.terminal.restore()
	}
	j.terminal.close()
	return hadTerminal
}
