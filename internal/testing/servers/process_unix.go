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

// signalGroup sends a signal to a server and its children.
func signalGroup(p *os.Process, sig syscall.Signal) error {
	err := syscall.Kill(-p.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil // it has ended in the meantime
	}
	return err
}
