package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Lookup finds the executable of a command. The error matches ErrNotFound or ErrNotExecutable.
func Lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) { // a PATH with the current directory is the choice of the user
		return path, nil
	}
	if errors.Is(err, exec.ErrNotFound) && name == filepath.Base(name) {
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			// LookPath looks for executable files only.
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return "", fmt.Errorf("%w: %s: %w", ErrNotExecutable, path, syscall.EACCES)
			}
		}
	}
	var named *exec.Error
	if errors.As(err, &named) {
		err = named.Err // the caller reports the name
	}
	return "", execError(err)
}

// execError returns ErrNotFound or ErrNotExecutable for an error of the system.
func execError(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno // without the name of the system call
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: it is neither a program, nor a script with a first line such as #!/bin/sh", ErrNotExecutable)
	}
	return fmt.Errorf("%w: %w", ErrNotExecutable, err)
}
