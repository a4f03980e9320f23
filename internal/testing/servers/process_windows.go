package servers

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// Windows does not have these signals. The numbers only have to be unused.
const (
	signalStop     = syscall.Signal(0x100)
	signalContinue = syscall.Signal(0x101)
)

func childAttributes() *syscall.SysProcAttr { return nil }

func serverAttributes(testing.TB) *syscall.SysProcAttr { return childAttributes() }

func giveToServer(testing.TB, string) {}

func signalPostgres(p *os.Process, sig syscall.Signal) error { return signalGroup(p, sig) }

// signalGroup can only end a process.
func signalGroup(p *os.Process, sig syscall.Signal) error {
	if sig == signalStop || sig == signalContinue {
		return errors.New("a process cannot be suspended on Windows")
	}
	err := p.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// asleep is never called, because no process can be stopped.
func asleep(int) bool { return true }
