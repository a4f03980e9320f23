//go:build unix

package job

import (
	"os"
	"syscall"
	"time"
)

// Events tells what happens to the job.
func (j *Job) Events() <-chan Event { return j.events }

// Release lets the job begin. Started or Failed follows.
func (j *Job) Release() {
	j.terminal.start()
	j.gate.Write([]byte{1})
	j.gate.Close()
}

// Abandon ends a job that was not released: it never begins.
func (j *Job) Abandon() {
	j.gate.Close()
	j.Close(false)
}

// Extend moves the time at which the guard kills the job.
func (j *Job) Extend(kill time.Time) {
	j.mu.Lock() // so that messages go out in their order
	defer j.mu.Unlock()
	j.kill = kill
	if j.guard != nil {
		j.guard.tell(message(kill))
	}
}

// Forward passes a signal on to the group, as a terminal does.
func (j *Job) Forward(sig os.Signal) {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	if s == syscall.SIGCONT && j.terminal.foreground() && !j.terminal.given {
		j.terminal.start() // we are back in the foreground
	}
	syscall.Kill(-j.group, s)
}

// Terminate sends a signal to everything that the job started, and wakes what is stopped.
func (j *Job) Terminate(sig syscall.Signal) {
	f := j.family()
	f.signal(sig)
	f.signal(syscall.SIGCONT)
}

// Kill kills everything that the job started and returns when it is dead. The error says
// what could not be killed.
func (j *Job) Kill() error { return j.family().kill(time.Now().Add(killTime)) }

// Alive reports whether anything that the job started still runs.
func (j *Job) Alive() bool { return j.family().alive() }

// GroupAlive reports whether anyone of the job's own group still runs.
func (j *Job) GroupAlive() bool {
	return syscall.Kill(-j.group, 0) == nil && (&family{group: j.group}).alive()
}

// Suspend follows a job that was stopped: we stop as well, so that the shell sees it, and
// continue it when we are continued. Before is called if we really are about to stop.
func (j *Job) Suspend(by syscall.Signal, before func()) {
	t := j.terminal
	if (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && t.foreground() {
		t.give() // it wants the terminal, and we have it
		syscall.Kill(-j.group, syscall.SIGCONT)
		return
	}
	if t.fd < 0 {
		return // somebody else stopped it, and will continue it
	}
	before()
	had := t.given
	t.take()
	StopSelf(j.signals)
	if t.foreground() {
		if had {
			t.give()
		} else {
			t.start()
		}
	}
	syscall.Kill(-j.group, syscall.SIGCONT)
}

// Close ends the guard, takes the terminal back and reports whether the job had it. Restore
// undoes what a killed job did to it.
func (j *Job) Close(restore bool) (hadTerminal bool) {
	j.mu.Lock()
	g := j.guard
	j.guard = nil // its end is expected from now on
	j.mu.Unlock()
	if g != nil {
		g.tell(done)
		g.to.Close()
		select {
		case <-g.gone:
		case <-time.After(time.Second): // it is stopped
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
