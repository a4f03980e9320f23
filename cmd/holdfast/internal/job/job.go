// Package job runs a command so that it can be ended in time, with all processes that it
// started.
//
// On Unix the job is a process group of its own. It gets the terminal if holdfast has it, and
// stops and continues together with holdfast. A guard, which is a small separate process, kills
// the job if holdfast is killed, or if it is stopped or hangs until the lock is about to be lost.
// So a job does not continue after SIGKILL of holdfast.
//
// Killing a job kills its group, and on Linux all its descendants in any group or session:
// there holdfast adopts orphans (PR_SET_CHILD_SUBREAPER). Some processes can escape: on Linux an
// orphan that left the group, if holdfast is killed with SIGKILL; on other systems all processes
// that left the group; on all systems processes that run as another user.
//
// On Windows the job is a job object, which the system ends when holdfast ends for any reason.
// There are no signals and no guard.
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
	Env  []string  // the complete environment
	Kill time.Time // when the guard kills the job, until Extend changes it; zero for no guard
	Mute bool      // the guard prints no messages
}

// An Event is something that happened to a job.
type Event struct {
	Kind   Kind
	Err    error          // Failed
	Code   int            // Ended: the exit code
	Signal syscall.Signal // Ended: the signal that killed the job, or 0; Stopped: the one that stopped it
}

// Kind is the kind of an Event.
type Kind uint8

const (
	Started   Kind = iota + 1 // the job runs
	Failed                    // the job could not be executed; Ended follows
	Stopped                   // the job was stopped, for example by Ctrl-Z: call Suspend
	Overdue                   // the guard kills the job, since Extend was not called in time
	Ended                     // the first process of the job has ended
	Unguarded                 // the guard was killed
)

var (
	// ErrNotFound is returned when there is no such command. Shells then exit with 127.
	ErrNotFound = errors.New("command not found")

	// ErrNotExecutable is returned when the command cannot be executed. Shells then exit with
	// 126.
	ErrNotExecutable = errors.New("cannot be executed")
)
