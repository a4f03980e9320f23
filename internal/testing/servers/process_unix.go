//go:build unix

package servers

import (
	"bytes"
	"errors"
	"fmt"
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

// stateOf returns the state of a process and its parent, or zeros if it has ended or the system has no /proc.
func stateOf(pid int) (state byte, parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " %c %d", &state, &parent)
	return state, parent
}

// asleep reports whether a process that got SIGSTOP has stopped. One of its threads has to run to
// stop all of them. Until then the others continue, which may take some time on a busy machine.
func asleep(pid int) bool {
	state, _ := stateOf(pid)
	return state == 0 || state == 'T'
}
