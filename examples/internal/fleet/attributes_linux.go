package fleet

import "syscall"

// attributes ends an instance with its fleet, even if the instance is suspended.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
