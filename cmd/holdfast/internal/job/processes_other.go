//go:build unix && !linux

package job

import (
	"errors"
	"os"
)

// adoptOrphans is not supported.
func adoptOrphans() {}

func rename(string) {}

// processes is not supported: only the process group is known.
func processes() ([]process, error) { return nil, errors.ErrUnsupported }

func executablePath() (string, error) { return os.Executable() }

// children and readProcess are not supported.
func children(int) ([]int, error) { return nil, errors.ErrUnsupported }

func readProcess(pid int) (process, bool) { return process{pid: pid}, false }

// parentOf is not supported.
func parentOf(int) int { return 0 }
