//go:build linux || darwin

package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/sqlitestore"
)

func init() { roles["churn"] = childChurn }

// childChurn locks NAME in PATH repeatedly. The kernel's lock on FILE, which ends with its
// process, shows whether two processes hold the name at the same time. The TTL is longer than a busy
// machine keeps a process waiting, because a process cannot unlock FILE in time then.
func childChurn(args []string) error {
	c, err := holdfast.Open(context.Background(), "sqlite:"+args[0])
	if err != nil {
		return err
	}
	f, err := os.OpenFile(args[2], os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		lease, err := c.Lock(context.Background(), args[1], holdfast.TTL(time.Second))
		if err != nil {
			return err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil && lease.Err() == nil {
			return fmt.Errorf("another process holds it too: %w", err)
		}
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		if err := lease.Unlock(context.Background()); err != nil && !errors.Is(err, holdfast.ErrLost) {
			return err
		}
	}
}

func TestProcessesKilledAtAnyMomentHarmNothing(t *testing.T) {
	dir := t.TempDir()
	path, judge := filepath.Join(dir, "locks.db"), filepath.Join(dir, "judge")
	var children []*child
	spawn := func() *child {
		c := start(t, "churn", path, "order", judge)
		c.hears("ready")
		return c
	}
	for range 4 {
		children = append(children, spawn())
	}
	end := func(c *child) {
		c.kill()
		for line := range c.lines {
			t.Error(line)
		}
	}
	for range 15 {
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		i := rand.IntN(len(children))
		end(children[i])
		children[i] = spawn()
	}
	for _, c := range children {
		end(c)
	}
	s := open(t, path)
	began := time.Now()
	eventually(t, "the name is free", func() bool {
		answer, err := s.Acquire(t.Context(), request("order"))
		if err != nil {
			t.Fatal(err)
		}
		return answer.Granted()
	})
	if took, limit := time.Since(began), s.Capabilities().Heartbeat+2*time.Second; took > limit {
		t.Errorf("free after %v, want %v at most", took, limit)
	}
	if err := sqlitestore.Intact(path); err != nil {
		t.Error(err)
	}
}
