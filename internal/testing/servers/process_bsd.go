//go:build unix && !linux

package servers

import "syscall"

// childAttributes puts a server into its own process group. It outlives a killed test binary, except on Linux.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
