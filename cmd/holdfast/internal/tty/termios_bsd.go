//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package tty

import "golang.org/x/sys/unix"

// GetTermios and SetTermios are the requests of ioctl(2) that read and set the modes of a
// terminal.
const (
	GetTermios = unix.TIOCGETA
	SetTermios = unix.TIOCSETA
)
