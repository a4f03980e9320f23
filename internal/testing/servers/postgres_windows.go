package servers

import (
	"os"
	"syscall"
	"testing"
)

func serverAttributes(testing.TB) *syscall.SysProcAttr { return childAttributes() }

func giveToServer(testing.TB, string) {}

func signalPostgres(p *os.Process, sig syscall.Signal) error { return signalGroup(p, sig) }
