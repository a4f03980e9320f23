package sqlitestore

import (
	"cmp"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/store"
)

// remoteFS are file systems that several kernels can share, or on which processes do not see
// each other's locks or shared memory at once. The keys are the magic numbers of statfs.
var remoteFS = map[int64]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB 2",
	0x65735546: "FUSE", // sshfs, virtiofs, GlusterFS, S3 and others
	0x01021997: "9P",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x00c36400: "CephFS",
	0x73757245: "Coda",
	0x564c:     "NCP",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x01161970: "GFS2",
	0x7461636f: "OCFS2",
	0x20030528: "OrangeFS",
	0x19830326: "BeeGFS",
	0xaad7aaea: "PanFS",
	0x786f4256: "VirtualBox shared folder",
	0xbacbacbc: "VMware shared folder",
}

// layeredFS are file systems that each container has to itself.
var layeredFS = map[int64]string{0x794c7630: "overlayfs", 0x61756673: "aufs"}

// checkFS returns an error that matches store.ErrInvalid if a file, or its directory, is on a
// file system on which locks do not work.
func checkFS(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fmt.Errorf("statfs %s: %w", path, err)
	}
	if err := checkFSType(path, int64(fs.Type)); err != nil {
		return err
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, 0, &st); err != nil {
		return nil // before Linux 4.11
	}
	return checkMount(path, &st)
}

func checkMount(path string, st *unix.Statx_t) error {
	if st.Mode&unix.S_IFMT == unix.S_IFREG && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return fmt.Errorf("%w: sqlite path %s: is mounted as a single file, so its -wal and -shm files are not shared: mount its directory instead", store.ErrInvalid, path)
	}
	return nil
}

func checkFSType(path string, kind int64) error {
	if name := remoteFS[kind&0xffffffff]; name != "" {
		return fmt.Errorf("%w: sqlite path %s: is on a file system of type %s, on which SQLite's locks and shared memory do not work between processes: put the file on a local disk such as /var/lib or /tmp, or use a store on a server to lock between hosts",
			store.ErrInvalid, path, name)
	}
	return nil
}

// fileSystem returns the kind of file system of a file, and whether it is in remoteFS or in layeredFS.
func fileSystem(path string) (kind string, shared, layered bool, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return "", false, false, fmt.Errorf("statfs %s: %w", path, err)
	}
	number := int64(fs.Type) & 0xffffffff
	kind = cmp.Or(remoteFS[number], layeredFS[number], fmt.Sprintf("of type %#x, local", number))
	return kind, remoteFS[number] != "", layeredFS[number] != "", nil
}

// freeSpace returns how many bytes this user can still write on the file system of a file.
func freeSpace(path string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil
}
