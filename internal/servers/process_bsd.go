//go:build unix && !linux

package servers

import "syscall"

// childAttributes puts a server into its own process group. A killed test binary leaves its
// servers behind: only Linux can prevent it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// asleep takes a process that got SIGSTOP for stopped.
func asleep(int) bool { return true }
