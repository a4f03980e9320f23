//go:build unix

package sqlitestore

import (
	"fmt"
	"syscall"

	"github.com/holdfast-lock/holdfast/store"
)

// A file knows which file a path meant when it was opened.
type file struct {
	path string
	stat syscall.Stat_t
}

func (f *file) note() error {
	if err := syscall.Stat(f.path, &f.stat); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if f.stat.Nlink > 1 {
		return fmt.Errorf("%w: sqlite path %s: has %d hard links: the files beside it, which SQLite names after it, are not the same for all; use one of them and remove the others",
			store.ErrInvalid, f.path, f.stat.Nlink)
	}
	return nil
}

// check returns an error if the path means another file by now, or none. It is asked in
// every transaction and costs less than a microsecond.
func (f *file) check() error {
	var now syscall.Stat_t
	switch err := syscall.Stat(f.path, &now); {
	case err == syscall.ENOENT:
		return errRemoved
	case err != nil:
		return fmt.Errorf("stat: %w", err)
	case now.Dev != f.stat.Dev || now.Ino != f.stat.Ino:
		return errReplaced
	}
	return nil
}
