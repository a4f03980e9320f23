//go:build unix

package job

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// hidden arguments make the executable play an inner part; see Inner.
const (
	hiddenExec   = "__exec"
	hiddenGuard  = "__guard"  // beside the job
	hiddenParent = "__parent" // a guard that starts the job
)

// Inner plays an inner part and does not return if the arguments ask for one: a guard, or
// the process that becomes the job.
func Inner(args []string) {
	if len(args) < 2 {
		return
	}
	switch args[1] {
	case hiddenExec:
		becomeJob(args[2:])
	case hiddenGuard, hiddenParent:
		beGuard(args[2:], args[1] == hiddenParent)
	default:
		return
	}
	os.Exit(64) // not called by us
}

// becomeJob waits for the word to go and executes the job in its own place. In between the
// process exists and does nothing: its group can be made the terminal's, and the guard can
// get to know it. If we are gone before the word is given, the job never begins.
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
	if word := make([]byte, 1); readFull(gate, word) != nil {
		os.Exit(0)
	}
	err := syscall.Exec(args[2], args[3:], os.Environ())
	var errno syscall.Errno
	errors.As(err, &errno)
	syscall.Write(report, []byte(strconv.Itoa(int(errno))))
	os.Exit(126)
}

// readFull reads without Go's poller, which would change the mode of the file.
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
