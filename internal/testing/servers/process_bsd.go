//go:build unix && !linux

package servers

import "syscall"

// childAttributes puts a server into its own process group. If the test binary is killed, its
// servers keep running. Only Linux can prevent that.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// asleep assumes that a process that got SIGSTOP has stopped.
func asleep(int) bool { return true }
