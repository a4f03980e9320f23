package faults

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A wallClock is the wall clock of servers, which a test can set.
type wallClock struct {
	t    testing.TB
	file string
}

// newClock builds the library that shifts clocks, and returns options with which servers use it.
func newClock(t testing.TB) (*wallClock, servers.RedisOptions) {
	t.Helper()
	dir := t.TempDir()
	library := filepath.Join(dir, "clock.so")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, "testdata/clock.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v; the race detector needs a C compiler too\n%s", err, out)
	}
	c := &wallClock{t, filepath.Join(dir, "clock")}
	c.shift(0)
	for name, mode := range map[string]os.FileMode{c.file: 0o644, dir: 0o755, filepath.Dir(dir): 0o711} { // PostgreSQL has another user
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	return c, servers.RedisOptions{Env: []string{"LD_PRELOAD=" + library, "FAULTS_CLOCK=" + c.file}}
}

// shift sets how far the clock is wrong.
func (c *wallClock) shift(by time.Duration) {
	c.t.Helper()
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	// The file is changed in place, because the servers have mapped it.
	if _, err := file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(by.Microseconds())), 0); err != nil {
		c.t.Fatal(err)
	}
}

// wrong is how far the clocks of these tests are wrong.
const wrong = 60 * time.Second
