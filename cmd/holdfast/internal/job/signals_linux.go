package job

import "syscall"

// systemSignals returns the signals that other systems do not have. Signals from 35 on are free
// for users; 32 to 34 belong to the C library.
func systemSignals() []syscall.Signal {
	all := []syscall.Signal{syscall.SIGPWR}
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		all = append(all, sig)
	}
	return all
}
