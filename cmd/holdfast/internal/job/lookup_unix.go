//go:build unix

package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lookup finds the executable of a command as a shell does. The error matches ErrNotFound or
// ErrNotExecutable.
func Lookup(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	if name == "" {
		return "", ErrNotFound
	}
	var denied error
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name) // an empty entry is the current directory
		if dir == "" || dir == "." {
			path = "./" + name
		}
		switch err := executable(path); {
		case err == nil:
			return path, nil
		case errors.Is(err, ErrNotExecutable) && denied == nil && !errors.Is(err, syscall.EISDIR):
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", ErrNotFound
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = syscall.EISDIR
	}
	if err == nil {
		err = unix.Access(path, unix.X_OK)
	}
	return execError(err)
}

// execError returns ErrNotFound or ErrNotExecutable for an error of the system.
func execError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrNotFound, plain(err))
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it is neither a program, nor a script with a first line such as #!/bin/sh", ErrNotExecutable)
	}
	return fmt.Errorf("%w: %w", ErrNotExecutable, plain(err))
}

// plain removes the name of the system call from an error.
func plain(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
