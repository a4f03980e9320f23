package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

func init() {
	roles["limited"] = childLimited
	roles["pairs"] = childPairs
}

// childPairs takes and releases names 15000 times. It keeps the store open until the next line on its standard input.
func childPairs(s *sqlitestore.Store, _ []string) error {
	if err := pairs(s, strconv.Itoa(os.Getpid())+":", 15000); err != nil {
		return err
	}
	fmt.Println("ok")
	fmt.Scanln()
	return s.Close()
}

// childLimited holds a lease and many names while no file can become larger than LIMIT.
func childLimited(s *sqlitestore.Store, args []string) error {
	signal.Ignore(syscall.SIGXFSZ)
	limit, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	if limit > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(limit), Max: uint64(limit)}); err != nil {
			return err
		}
	}
	ctx := context.Background()
	var held []store.Renewal
	for i := range 300 {
		req := request("held:" + strconv.Itoa(i))
		if _, err := s.Acquire(ctx, req); err != nil {
			return err
		}
		held = append(held, renewal(req))
	}
	if err := pairs(s, "job:", 3000); err != nil {
		return err
	}
	renewed, err := s.Renew(ctx, held)
	if err != nil {
		return err
	}
	for _, r := range renewed {
		if r.Status != store.Extended {
			return fmt.Errorf("renewal: %+v", r)
		}
	}
	again, err := sqlitestore.Open(ctx, os.Args[1])
	if err != nil {
		return fmt.Errorf("opened again: %w", err)
	}
	fmt.Println("ok")
	return errors.Join(again.Close(), s.Close())
}

// The limit stands for a disk with no space for a longer log.
func TestALogThatCannotGrowDoesNotStopTheStore(t *testing.T) {
	start(t, "limited", newPath(t), "200000").hears("ok")
}

// The file system has 5 MiB, less than the usual length of the log.
func TestTheStoreWorksOnASmallFileSystem(t *testing.T) {
	dir := t.TempDir()
	options := []string{"--mount"}
	if os.Getuid() != 0 {
		options = append(options, "--user", "--map-root-user")
	}
	change := inNamespaces("mount -t tmpfs -o size=5m tmpfs "+dir, options...)
	probe := exec.Command("true")
	if change(probe); probe.Run() != nil {
		t.Skip("cannot mount a small file system: that takes root, or a kernel that allows user namespaces")
	}
	startAs(t, "limited", change, dir+"/locks.db", "0").hears("ok")
}

// With several processes that write all the time, there is always one that reads the log.
func TestTheLogStaysShortWithBusyProcesses(t *testing.T) {
	path, s := newFile(t)
	var children []*child
	for range 4 {
		children = append(children, start(t, "pairs", path))
	}
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		must(t, err)
		return info.Size()
	}
	most := int64(0)
	for _, c := range children {
		for ended := false; !ended; {
			select {
			case line := <-c.lines:
				if ended = true; line != "ok" {
					t.Fatal(line)
				}
			case <-time.After(time.Millisecond):
				most = max(most, size())
			}
		}
	}
	if limit := int64(48 << 20); most > limit {
		t.Errorf("the log grew to %d bytes, want %d at most", most, limit)
	}
	// The children are idle now and have the file open.
	must(t, pairs(s, "own:", 2000))
	if limit := int64(17 << 20); size() > limit {
		t.Errorf("the log has %d bytes after the others have stopped, want %d at most", size(), limit)
	}
}
