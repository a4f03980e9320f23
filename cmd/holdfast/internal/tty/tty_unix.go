//go:build unix

// Package tty queries and sets the modes of terminals.
package tty

import (
	"os"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether a standard file is a terminal. Such a file is in blocking mode, so Fd
// does not change its mode.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), GetTermios)
	return err == nil
}

// Size returns the columns and lines of a terminal, or 0 if they are unknown.
func Size(f *os.File) (columns, lines int) {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(ws.Col), int(ws.Row)
}
