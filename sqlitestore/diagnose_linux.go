package sqlitestore

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// layeredFS are file systems that each container has to itself.
var layeredFS = map[int64]string{0x794c7630: "overlayfs", 0x61756673: "aufs"}

// fileSystem returns the kind of file system of a file, whether several hosts share it, and
// whether it is a layer of a container.
func fileSystem(path string) (kind string, shared, layered bool, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return "", false, false, fmt.Errorf("statfs %s: %w", path, err)
	}
	number := int64(fs.Type) & 0xffffffff
	if kind, shared = remoteFS[number]; shared {
		return kind, true, false, nil
	}
	if kind, layered = layeredFS[number]; layered {
		return kind, false, true, nil
	}
	return fmt.Sprintf("of type %#x, local", number), false, false, nil
}

// freeSpace returns how many bytes this user can still write on the file system of a file.
func freeSpace(path string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil
}
