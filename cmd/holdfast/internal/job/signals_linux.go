package job

import "syscall"

// systemSignals are those that other systems do not have. From 35 on they are at the user's
// disposal; 32 to 34 belong to the C library.
func systemSignals() []syscall.Signal {
	all := []syscall.Signal{syscall.SIGPWR}
	for sig := syscall.Signal(35); sig <= 64; sig++ {
		all = append(all, sig)
	}
	return all
}
