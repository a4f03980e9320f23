// Package tty asks and sets terminals.
package tty

import "os"

// Fancy reports whether a file is a terminal that people look at. One that calls itself
// dumb is not: it shows control sequences as garbage.
func Fancy(f *os.File) bool {
	return IsTerminal(f) && os.Getenv("TERM") != "dumb"
}

// Colours reports whether output to a file may be coloured. See https://no-color.org.
func Colours(f *os.File) bool {
	return Fancy(f) && os.Getenv("NO_COLOR") == ""
}
