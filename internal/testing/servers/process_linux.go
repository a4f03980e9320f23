package servers

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// childAttributes puts a server into its own process group, out of reach of Ctrl-C, and ends it with the test
// binary, even if that is killed. The kernel watches the thread that started the child, which Go ends only
// together with a goroutine that locked it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// asleep reports whether a process that got SIGSTOP has stopped. One of its threads has to run to
// stop all of them. Until then the others continue, which may take some time on a busy machine.
func asleep(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // it has ended
	}
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return len(state) > 0 && state[0] == 'T'
}
