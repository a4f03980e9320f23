//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// shellArgs is how -c runs a script: with the same shell everywhere, whatever the user's
// own is.
func shellArgs(script string, args []string) []string {
	return append([]string{"/bin/sh", "-c", script, "sh"}, args...)
}

// openInherited opens a file that we were started with, and keeps it from the job.
func openInherited(fd int) (*os.File, error) {
	// What the runtime opened itself is closed on exec, what was inherited is not.
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, errors.New("is not open")
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "events"), nil
}
