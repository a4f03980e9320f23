package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// A Host is a testing.TB for a server that a package shares. TestMain calls End after the tests.
type Host struct {
	testing.TB
	mu   sync.Mutex
	ends []func()
}

// End stops the servers.
func (h *Host) End() {
	for _, end := range slices.Backward(h.ends) {
		end()
	}
}

// Helper does nothing.
func (h *Host) Helper() {}

// Cleanup adds a function that End calls.
func (h *Host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, f)
}

// Failed returns false.
func (h *Host) Failed() bool { return false }

// Name returns a name for files.
func (h *Host) Name() string { return "host" }

// Log does nothing.
func (h *Host) Log(...any) {}

// Logf does nothing.
func (h *Host) Logf(string, ...any) {}

// Fatal panics.
func (h *Host) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Fatalf panics.
func (h *Host) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// TempDir returns a folder that End removes. All users can read it, for servers that do not run as root.
func (h *Host) TempDir() string {
	parent, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		panic(err)
	}
	h.Cleanup(func() { os.RemoveAll(parent) })
	dir := filepath.Join(parent, "1")
	if err := os.Mkdir(dir, 0o755); err != nil {
		panic(err)
	}
	return dir
}
