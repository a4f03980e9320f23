//go:build !linux

package sqlitestore

import "errors"

// checkFS checks nothing on systems other than Linux; see the package documentation.
func checkFS(_ string) error { return nil }

func fileSystem(string) (kind string, shared, layered bool, err error) {
	return "", false, false, errors.New("the kind of file system is known on Linux only")
}

func freeSpace(string) (int64, error) {
	return 0, errors.New("the free space is known on Linux only")
}
