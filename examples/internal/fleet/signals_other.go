//go:build !unix

package fleet

import (
	"errors"
	"os"
)

// terminate fails where there are no signals.
var terminate = os.Interrupt

var errSignals = errors.New("this system cannot suspend a process: run this example on Linux, macOS or in WSL")

func suspend(*os.Process) error { return errSignals }
func resume(*os.Process) error  { return errSignals }
