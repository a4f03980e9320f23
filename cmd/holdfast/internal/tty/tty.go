// Package tty queries and sets the modes of terminals.
package tty

import "os"

// Fancy reports whether a file is a terminal that understands control sequences. A terminal
// with TERM=dumb does not.
func Fancy(f *os.File) bool {
	return IsTerminal(f) && os.Getenv("TERM") != "dumb"
}
