package servers

import (
	"fmt"
	"os"
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

// Helper does nothing, and neither do Log and Logf.
func (h *Host) Helper()             {}
func (h *Host) Log(...any)          {}
func (h *Host) Logf(string, ...any) {}

// Failed returns false, and Name a name for files.
func (h *Host) Failed() bool { return false }
func (h *Host) Name() string { return "host" }

// Fatal and Fatalf panic.
func (h *Host) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (h *Host) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Cleanup adds a function that End calls.
func (h *Host) Cleanup(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ends = append(h.ends, f)
}

// TempDir returns a folder that End removes.
func (h *Host) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast")
	must(h, err)
	h.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
