//go:build unix

package fleet

import (
	"os"
	"syscall"
)

const terminate = syscall.SIGTERM

func suspend(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error  { return p.Signal(syscall.SIGCONT) }
