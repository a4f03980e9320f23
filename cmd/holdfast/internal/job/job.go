// Package job runs a command so that it can be ended in time, with all processes that it started.
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
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A Spec says what to run.
type Spec struct {
	Path  string        // of the executable
	Args  []string      // the name first
	Env   []string      // the complete environment
	Kill  time.Time     // when the guard kills the job, until Extend changes it; zero for no guard
	Spare time.Duration // how long after Kill another holder cannot have the lock yet
	Mute  bool          // the guard prints no messages
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

// Errors of Lookup and of the event Failed.
var (
	ErrNotFound      = errors.New("command not found")  // shells then exit with 127
	ErrNotExecutable = errors.New("cannot be executed") // shells then exit with 126
)

// Lookup finds the executable of a command. The error matches ErrNotFound or ErrNotExecutable.
func Lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) { // a PATH with the current directory is the choice of the user
		return path, nil
	}
	if errors.Is(err, exec.ErrNotFound) && name == filepath.Base(name) {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			// LookPath looks for executable files only.
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return "", fmt.Errorf("%w: %s: %w", ErrNotExecutable, path, syscall.EACCES)
			}
		}
	}
	var named *exec.Error
	if errors.As(err, &named) {
		err = named.Err // the caller reports the name
	}
	return "", execError(err)
}

// execError returns ErrNotFound or ErrNotExecutable for an error of the system.
func execError(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno // without the name of the system call
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it is neither a program, nor a script with a first line such as #!/bin/sh", ErrNotExecutable)
	}
	return fmt.Errorf("%w: %w", ErrNotExecutable, err)
}
