//go:build unix

package servers

import (
	"errors"
	"os"
	"syscall"
)

const (
	signalStop     = syscall.SIGSTOP
	signalContinue = syscall.SIGCONT
)

// signalGroup reaches the children of a server too.
func signalGroup(p *os.Process, sig syscall.Signal) error {
	err := syscall.Kill(-p.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil // it has ended in the meantime
	}
	return err
}
