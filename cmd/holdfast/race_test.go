//go:build race && unix

package main

import "os"

// The built command has the race detector as well: a race ends it with an exit code that no
// test expects. It need not wait a second at its end for races that are still to come.
func init() {
	buildFlags = append(buildFlags, "-race")
	os.Setenv("GORACE", "atexit_sleep_ms=0")
}
