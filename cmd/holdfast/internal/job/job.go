// Package job runs a command so that it can be ended in time, with everything it started.
//
// On Unix the job is a process group of its own. It has the terminal while it runs if we
// had it, and stops and continues with us. A guard, which is a small process of its own,
// kills the job when we are killed, stopped or stuck and the time is over. So kill -9 of
// holdfast does not leave the job running.
//
// What is killed is the group, and on Linux every descendant as well, in whatever group or
// session: there the guard is the job's parent and adopts orphans (PR_SET_CHILD_SUBREAPER).
// If the guard is killed, holdfast adopts the job and starts another guard beside it. What
// gets away: on Linux an orphan that left the group, if both guard and holdfast are killed
// with -9; on other systems every process that left the group; on all of them a process
// that runs as another user.
//
// On Windows the job is a job object, which the system ends when we end, however that
// happens. There are no signals and no guard.
package job

import (
	"errors"
	"syscall"
	"time"
)

// A Spec says what to run.
type Spec struct {
	Path string    // of the executable
	Args []string  // the name first
	Env  []string  // whole
	Kill time.Time // when the guard kills the job, unless Extend moves that; zero for no guard
	Mute bool      // the guard says nothing
}

// An Event is something that happened to a job.
type Event struct {
	Kind   Kind
	Err    error          // Failed
	Code   int            // Ended: the exit code
	Signal syscall.Signal // Ended: what killed it, or 0; Stopped: what stopped it
}

// Kind is the kind of an Event.
type Kind uint8

const (
	Started   Kind = iota + 1 // it runs
	Failed                    // it could not be executed; Ended follows
	Stopped                   // it was stopped, by Ctrl-Z for instance: call Suspend
	Overdue                   // the guard kills it, since Extend was not called in time
	Ended                     // its first process has ended
	Unguarded                 // the guard died and could not be replaced
)

// Errors of commands that cannot be run, as shells tell them apart.
var (
	ErrNotFound      = errors.New("command not found")
	ErrNotExecutable = errors.New("cannot be executed")
)
