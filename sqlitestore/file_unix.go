//go:build unix

package sqlitestore

import (
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/store"
)

// A file remembers which file its path referred to when it was opened.
type file struct {
	path string
	stat syscall.Stat_t
}

func (f *file) note() error {
	if err := syscall.Stat(f.path, &f.stat); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if f.stat.Nlink > 1 {
		return fmt.Errorf("%w: sqlite path %s: has %d hard links, and SQLite would use different -wal and -shm files for each; remove all links but one",
			store.ErrInvalid, f.path, f.stat.Nlink)
	}
	return nil
}

// identity returns a text that is the same for all processes that use the same file.
func (f *file) identity() string { return fmt.Sprintf("device %x, inode %d", f.stat.Dev, f.stat.Ino) }

// check returns an error if the path no longer refers to that file. It takes a microsecond or two.
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

// unwritable returns which of the files of the store, or their directory, this user cannot write to, or
// "". It does not open them: closing a descriptor would drop the locks of SQLite.
func (f *file) unwritable() string {
	for _, path := range []string{f.path, f.path + "-wal", f.path + "-shm", filepath.Dir(f.path)} {
		if unix.Access(path, unix.W_OK) == unix.EACCES {
			return path
		}
	}
	return ""
}
