package fleet

import "syscall"

// attributes makes an instance end with its fleet, even if the instance is suspended.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
