//go:build !linux

package sqlitestore

import "errors"

// fileSystem does not know the kind of file system on systems other than Linux.
func fileSystem(string) (kind string, shared, layered bool, err error) {
	return "", false, false, errors.New("the kind of file system is known on Linux only")
}

// freeSpace does not know the free space on systems other than Linux.
func freeSpace(string) (int64, error) {
	return 0, errors.New("the free space is known on Linux only")
}
