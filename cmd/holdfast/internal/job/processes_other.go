//go:build unix && !linux

package job

import (
	"errors"
	"os"
)

func adoptOrphans() {}

func rename(string) {}

// processes is not known here: the group has to do.
func processes() ([]process, bool, error) { return nil, false, errors.ErrUnsupported }

func executablePath() (string, error) { return os.Executable() }

// parentOf is not known here.
func parentOf(int) int { return 0 }
