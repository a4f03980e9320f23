package sqlitestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/store"
)

func TestAFileThatIsMountedAloneIsRefused(t *testing.T) {
	for mode, refused := range map[uint16]bool{unix.S_IFREG | 0o600: true, unix.S_IFDIR | 0o700: false} {
		err := checkMount("/mnt/locks", &unix.Statx_t{Mode: mode, Attributes: unix.STATX_ATTR_MOUNT_ROOT})
		if errors.Is(err, store.ErrInvalid) != refused {
			t.Errorf("mode %o: %v, refused should be %v", mode, err, refused)
		}
	}
	dir := t.TempDir()
	path, mount := filepath.Join(dir, "locks.db"), filepath.Join(dir, "mount.db")
	for _, p := range []string{path, mount} {
		must(t, os.WriteFile(p, nil, 0o600))
	}
	if err := unix.Mount(path, mount, "", unix.MS_BIND, ""); err != nil {
		t.Logf("not tried with a real mount, which takes root: %v", err)
		return
	}
	t.Cleanup(func() { unix.Unmount(mount, unix.MNT_DETACH) })
	_, err := Open(t.Context(), mount)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "mount its directory") {
		t.Errorf("error %v, want an ErrInvalid", err)
	}
	s, err := Open(t.Context(), path)
	must(t, err)
	s.Close()
}

// register registers the file system of a directory as one of these kinds, for the rest of the test.
func register(t *testing.T, dir string, kinds map[int64]string, name string) {
	t.Helper()
	var fs unix.Statfs_t
	must(t, unix.Statfs(dir, &fs))
	kind := int64(fs.Type) & 0xffffffff
	kinds[kind] = name
	t.Cleanup(func() { delete(kinds, kind) })
}

func TestAFileOnAFileSystemThatSpansHostsIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	existing := filepath.Join(dir, "existing.db")
	s, err := Open(t.Context(), existing)
	must(t, err)
	s.Close()
	register(t, dir, remoteFS, "ShareFS")
	for _, path := range []string{existing, filepath.Join(dir, "new.db")} {
		_, err := store.Open(t.Context(), "sqlite:"+path)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "ShareFS") || !strings.Contains(err.Error(), "local disk") {
			t.Errorf("%s: error %v, want an ErrInvalid", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new.db")); err == nil {
		t.Error("the file was created")
	}
}

func TestFileSystemsThatSpanHostsAreRefused(t *testing.T) {
	for kind, name := range map[int64]string{0x6969: "NFS", 0xff534d42: "CIFS", -0x00acb2be: "CIFS", 0x65735546: "FUSE", 0x01021997: "9P"} {
		err := checkFSType("/mnt/share", kind)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "/mnt/share") {
			t.Errorf("%#x: %v, want an ErrInvalid that says %s", kind, err, name)
		}
	}
	for kind, name := range map[int64]string{0xef53: "ext4", 0x01021994: "tmpfs", 0x58465342: "xfs", 0x9123683e: "btrfs", 0x794c7630: "overlayfs", 0x2fc12fc1: "zfs"} {
		if err := checkFSType("/var/lib", kind); err != nil {
			t.Errorf("%s: %v, want nil", name, err)
		}
	}
}
