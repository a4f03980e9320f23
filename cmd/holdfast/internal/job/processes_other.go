//go:build unix && !linux

package job

import (
	"errors"
	"os"
)

func executablePath() (string, error) { return os.Executable() }

// The rest is not supported: only the process group is known.

func adoptOrphans()                       {}
func rename(string)                       {}
func processes() ([]process, error)       { return nil, errors.ErrUnsupported }
func children(int) ([]int, error)         { return nil, errors.ErrUnsupported }
func readProcess(pid int) (process, bool) { return process{pid: pid}, false }
