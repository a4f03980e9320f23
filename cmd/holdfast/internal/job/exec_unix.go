//go:build unix

package job

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// First arguments with which holdfast starts itself: see Inner.
const (
	hiddenExec  = "__exec"
	hiddenGuard = "__guard"
)

// Inner runs the guard, or becomes the job, if the arguments say so. In that case it does not
// return.
func Inner(args []string) {
	if len(args) < 2 {
		return
	}
	switch args[1] {
	case hiddenExec:
		becomeJob(args[2:])
	case hiddenGuard:
		beGuard(args[2:])
	default:
		return
	}
	os.Exit(64) // not called by holdfast
}

// becomeJob waits until Release is called, and then executes the job in its place. While the
// process waits, holdfast can give the terminal to its group, and the guard learns its process
// ID. If holdfast ends before that, the job never begins.
func becomeJob(args []string) {
	if len(args) < 4 {
		return
	}
	gate, err1 := strconv.Atoi(args[0])
	report, err2 := strconv.Atoi(args[1])
	if err1 != nil || err2 != nil {
		return
	}
	syscall.CloseOnExec(gate)
	syscall.CloseOnExec(report)
	if released := make([]byte, 1); readFull(gate, released) != nil {
		os.Exit(0)
	}
	err := syscall.Exec(args[2], args[3:], os.Environ())
	var errno syscall.Errno
	errors.As(err, &errno)
	syscall.Write(report, []byte(strconv.Itoa(int(errno))))
	os.Exit(126)
}

// readFull reads without the poller of the Go runtime, which would make the file
// non-blocking.
func readFull(fd int, to []byte) error {
	for len(to) > 0 {
		n, err := syscall.Read(fd, to)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return syscall.EPIPE
		}
		to = to[n:]
	}
	return nil
}
