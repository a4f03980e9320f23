package sqlitestore

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
)

// opened opens a store on a new file.
func opened(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(dir, "locks.db"))
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestDiagnoseFindsAnotherJournalMode(t *testing.T) {
	s := opened(t, t.TempDir())
	diagnosistest.Want(t, s.Diagnose(t.Context(), time.Second), "sqlite.host note")
	s.read.close() // the mode can be changed only by the last connection
	s.read = nil
	if row, err := s.conn.get("PRAGMA journal_mode = DELETE"); err != nil || text(row[0]) != "delete" {
		t.Fatal(row, err)
	}
	diagnosistest.Want(t, s.Diagnose(t.Context(), time.Second), "sqlite.host note", "sqlite.journal warning")
}

func TestDiagnoseFindsAFileSystemThatSpansHosts(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir)
	register(t, dir, remoteFS, "ShareFS")
	diagnosistest.Want(t, s.Diagnose(t.Context(), time.Second), "sqlite.host note", "sqlite.file-system failure")
}

func TestDiagnoseFindsALayerOfAContainer(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "mount"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	mount := filepath.Join(dir, "mount")
	options := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := unix.Mount("overlay", mount, "overlay", 0, options); err != nil { // needs root, and a file system below that supports it
		t.Logf("tried without a real overlay: %v", err)
		register(t, dir, layeredFS, "overlayfs")
	} else {
		t.Cleanup(func() { unix.Unmount(mount, unix.MNT_DETACH) })
	}
	s := opened(t, mount)
	diagnosistest.Want(t, s.Diagnose(t.Context(), time.Second), "sqlite.host note", "sqlite.overlay note")
}

func TestDiagnoseFindsLittleFreeSpace(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=5m"); err != nil {
		t.Skipf("cannot mount a small file system, which takes root: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	s := opened(t, dir)
	diagnosistest.Want(t, s.Diagnose(t.Context(), time.Second), "sqlite.host note", "sqlite.space warning")
}
