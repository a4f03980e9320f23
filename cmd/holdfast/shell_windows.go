package main

import (
	"errors"
	"os"
)

// shellArgs returns the command that runs a script for -c.
func shellArgs(script string, args []string) []string {
	return append([]string{"cmd", "/C", script}, args...)
}

func openInherited(int) (*os.File, error) {
	return nil, errors.New("on Windows only 2, which is stderr, can be used")
}
