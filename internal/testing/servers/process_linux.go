package servers

import "syscall"

// childAttributes puts a server into its own process group, out of reach of Ctrl-C, and ends it with the test
// binary, even if that is killed. The kernel watches the thread that started the child, which Go ends only
// together with a goroutine that locked it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
