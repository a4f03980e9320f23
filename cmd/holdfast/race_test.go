//go:build race && unix

package main

import "os"

// The built command has the race detector too, except for SQLite (see the Makefile): a race ends it
// with an exit code that no test expects. By default it would wait for a second before it exits.
func init() {
	buildFlags = append(buildFlags, "-race", "-gcflags=modernc.org/libc=-race=false", "-gcflags=modernc.org/sqlite/lib=-race=false")
	os.Setenv("GORACE", "atexit_sleep_ms=0")
}
