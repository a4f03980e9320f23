//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// shellArgs returns the command that runs a script for -c. It uses the same shell for all users.
func shellArgs(script string, args []string) []string {
	return append([]string{"/bin/sh", "-c", script, "sh"}, args...)
}

// openInherited opens a file descriptor that holdfast has inherited. The job does not get it.
func openInherited(fd int) (*os.File, error) {
	// Descriptors that the Go runtime has opened itself are closed on exec.
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, errors.New("the descriptor is not open")
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "events"), nil
}
