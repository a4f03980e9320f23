//go:build linux || darwin

package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

func init() {
	roles["full"] = childFull
}

// known are the errors of the contract. After any other error the outcome is unknown.
var known = []error{store.ErrInvalid, store.ErrNotHeld, store.ErrUnsupported, store.ErrClosed}

// unknown expects an error with this text that matches no error of the contract.
func unknown(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v, want one that says %q", err, says)
	}
	for _, e := range known {
		if errors.Is(err, e) {
			t.Errorf("error %v: is %v, want an unknown outcome", err, e)
		}
	}
}

// A holder must not extend its grant in a file that was removed, because the next process uses
// another file.
func TestRenewalsFailAfterTheFileWasRemovedOrReplaced(t *testing.T) {
	for says, spoil := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			return os.WriteFile(path, nil, 0o600)
		},
	} {
		t.Run(says, func(t *testing.T) {
			path, s := newFile(t)
			req := take(t, s, "order")
			_, err := s.List(t.Context(), store.Query{})
			must(t, errors.Join(err, spoil(path)))
			_, err = s.Renew(t.Context(), []store.Renewal{renewal(req)})
			unknown(t, err, says)
			time.Sleep(20 * time.Millisecond) // the file is checked from time to time
			_, err = s.Acquire(t.Context(), request("other"))
			unknown(t, err, says)
			_, err = s.List(t.Context(), store.Query{})
			unknown(t, err, says)
		})
	}
}

func TestADamagedFileIsAnUnknownOutcome(t *testing.T) {
	path, s := newFile(t)
	must(t, s.Close()) // writes the log into the file
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	info, err := f.Stat()
	must(t, err)
	noise := []byte(strings.Repeat("noise", int(info.Size()-4096)/5))
	_, err = f.WriteAt(noise, 4096) // all pages except the one that describes the tables
	must(t, err)
	f.Close()
	_, err = store.Open(t.Context(), "sqlite:"+path)
	unknown(t, err, "damaged")
}

// The test uses an unprivileged child, because root can always write.
func TestAFileThatCannotBeWrittenIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "locks.db")
	s := open(t, path)
	must(t, s.Close())
	for _, p := range []string{filepath.Dir(dir), dir} {
		must(t, os.Chmod(p, 0o755))
	}
	unprivileged := func(cmd *exec.Cmd) {
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
	}
	test := func(mode os.FileMode, path, says string) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		exe := runnable(t)
		c := startAs(t, "open", func(cmd *exec.Cmd) {
			cmd.Path = exe
			unprivileged(cmd)
		}, path, "order")
		if line := c.hears("error:"); !strings.Contains(line, says) {
			t.Errorf("error %q, want one that says %q", line, says)
		}
	}
	test(0o444, path, "cannot write")
	test(0o000, path, "unable to open")
	if os.Getuid() == 0 {
		test(0, filepath.Join(dir, "new.db"), "permission denied")
	}
}

// SQLite creates the -wal and -shm files with the mode of the file, and with the group of the
// process or of the directory.
func TestUsersOfAGroupShareAFileInADirectoryWithSetgid(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to start processes of two users")
	}
	const group, first, second = 64001, 64002, 64003
	exe := runnable(t)
	as := func(uid uint32) func(*exec.Cmd) {
		return func(cmd *exec.Cmd) {
			cmd.Path = exe
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{group}}}
		}
	}
	for _, setgid := range []bool{true, false} {
		t.Run(fmt.Sprintf("setgid=%v", setgid), func(t *testing.T) {
			dir := t.TempDir()
			path, mode := filepath.Join(dir, "locks.db"), os.FileMode(0o770)
			if setgid {
				mode |= os.ModeSetgid
			}
			err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chown(dir, 0, group), os.Chmod(dir, mode),
				os.WriteFile(path, nil, 0o600), os.Chown(path, 0, group), os.Chmod(path, 0o660))
			must(t, err)
			startAs(t, "hold", as(first), path, "order").hears("held")
			other := startAs(t, "open", as(second), path, "other")
			if setgid {
				other.hears("token")
				return
			}
			line := other.hears("error:")
			for _, says := range []string{path + "-wal", "setgid"} {
				if !strings.Contains(line, says) {
					t.Errorf("error %q, want one that says %q", line, says)
				}
			}
		})
	}
}

// A new file must not be combined with the log of the removed one.
func TestAPathWhoseFileWasRemovedInUseIsRefused(t *testing.T) {
	path, s := newFile(t)
	take(t, s, "order")
	must(t, os.Remove(path))
	for range 2 {
		line := start(t, "open", path, "order").hears("error:")
		if !strings.Contains(line, "removed") || !strings.Contains(line, path+"-wal") {
			t.Errorf("error %q, want one that says that the file was removed and what to do", line)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was created")
	}
}

// runnable copies the test binary to a folder where other users can run it.
func runnable(t *testing.T) string {
	exe, err := os.Executable()
	must(t, err)
	if os.Getuid() != 0 {
		return exe
	}
	text, err := os.ReadFile(exe)
	must(t, err)
	dir, err := os.MkdirTemp("", "sqlitestore")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "test")
	must(t, errors.Join(os.WriteFile(path, text, 0o755), os.Chmod(dir, 0o755)))
	return path
}

// The test limits the file size to simulate a full disk. Grants stay held, and calls work again
// when there is space.
func TestAFullDiskIsAnUnknownOutcomeAndHarmsNothing(t *testing.T) {
	path := newPath(t)
	c := start(t, "full", path)
	if line := c.hears("full:"); !strings.Contains(line, "is full") {
		t.Errorf("error %q, want one that says what is full", line)
	}
	c.hears("renewed")
	c.hears("kept")
	c.hears("ok")
}

func childFull(s *sqlitestore.Store, _ []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	ctx := context.Background()
	held := request("held")
	if _, err := s.Acquire(ctx, held); err != nil {
		return err
	}
	info, err := os.Stat(os.Args[1] + "-wal")
	if err != nil {
		return err
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	limit := old
	limit.Cur = uint64(info.Size()) + 1000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	var granted []store.Request
	tokens := make(map[string]int64)
	for i := 0; err == nil && i < 10_000; i++ { // until the file must grow
		var answer store.Answer
		req := request("order:" + strconv.Itoa(i))
		if answer, err = s.Acquire(ctx, req); err == nil {
			granted = append(granted, req)
			tokens[req.Name] = answer.Token
		}
	}
	if err == nil {
		return errors.New("granted on a full disk")
	}
	fmt.Println("full:", err)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	out, err := s.Renew(ctx, []store.Renewal{renewal(held)})
	if err != nil || out[0].Status != store.Extended {
		return fmt.Errorf("renewed %v: %w", out, err)
	}
	fmt.Println("renewed")
	for _, req := range granted {
		answer, err := s.Acquire(ctx, req)
		if err != nil || answer.Token != tokens[req.Name] {
			return fmt.Errorf("%s had the token %d, and then %+v, %v", req.Name, tokens[req.Name], answer, err)
		}
	}
	fmt.Println("kept")
	answer, err := s.Acquire(ctx, request("order"))
	if err != nil || !answer.Granted() {
		return fmt.Errorf("not granted: %w", err)
	}
	fmt.Println("ok")
	return s.Close()
}
