//go:build unix

package tty

import (
	"os"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(fd(f), GetTermios)
	return err == nil
}

// Size returns the columns and lines of a terminal, or 0 if they are unknown.
func Size(f *os.File) (columns, lines int) {
	ws, err := unix.IoctlGetWinsize(fd(f), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(ws.Col), int(ws.Row)
}

// fd is used only for the standard files. They are in blocking mode, so Fd does not change their
// mode.
func fd(f *os.File) int { return int(f.Fd()) }
