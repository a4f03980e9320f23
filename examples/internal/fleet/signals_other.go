//go:build !unix

package fleet

import (
	"errors"
	"os"
)

// terminate is a signal that cannot be sent on systems without signals.
var terminate = os.Interrupt

var errSignals = errors.New("this system cannot suspend a process: run this example on Linux, macOS or in WSL")

func suspend(*os.Process) error { return errSignals }
func resume(*os.Process) error  { return errSignals }
