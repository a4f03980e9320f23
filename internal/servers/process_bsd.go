//go:build unix && !linux

package servers

import "syscall"

// childAttributes puts a server into its own process group. A killed test binary leaves its
// servers behind, which only Linux can prevent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// asleep assumes that a process that got SIGSTOP has stopped.
func asleep(int) bool { return true }
