package main

import (
	"errors"
	"os"
)

// shellArgs is how -c runs a script.
func shellArgs(script string, args []string) []string {
	return append([]string{"cmd", "/C", script}, args...)
}

func openInherited(int) (*os.File, error) {
	return nil, errors.New("this system hands on no file descriptors but stderr")
}
