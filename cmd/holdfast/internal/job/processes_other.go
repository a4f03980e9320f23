//go:build unix && !linux

package job

import (
	"errors"
	"os"
)

func adoptOrphans() bool { return false }

// startJob is for systems where the guard adopts orphans.
func (g *guardProcess) startJob(int, int) error { return errors.ErrUnsupported }

func rename(string) {}

// processes is not known here: the group has to do.
func processes() ([]process, error) { return nil, errors.ErrUnsupported }

func executablePath() (string, error) { return os.Executable() }

// children and readProcess are not known here.
func children(int) ([]int, error) { return nil, errors.ErrUnsupported }

func readProcess(pid int) (process, bool) { return process{pid: pid}, false }

// parentOf is not known here.
func parentOf(int) int { return 0 }
