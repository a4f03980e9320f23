package sqlitestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestNoFileIsLeftOpenAfterClose(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "locks.db")
	files := openFiles(t, dir)
	for i := range 3 {
		name := fmt.Sprint("order:", i)
		a, b := open(t, path), open(t, path)
		take(t, a, name)
		queue(t, b, name) // opens a socket
		_, err := b.List(t.Context(), store.Query{})
		must(t, err)
		for _, s := range []*sqlitestore.Store{b, a, a} {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("files %v (%v), want the database alone", entries, err)
		}
		if now := openFiles(t, dir); now > files {
			t.Errorf("%d open files and sockets, %d before", now, files)
		}
	}
}

// openFiles counts sockets, and open files below a directory.
func openFiles(t *testing.T, dir string) int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // this system has no /proc
	}
	n := 0
	for _, fd := range fds {
		target, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if strings.HasPrefix(target, dir) || strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

func TestAHandleListensOnlyWhileSomebodyWaits(t *testing.T) {
	path := newPath(t)
	a, b := open(t, path), open(t, path)
	sqlitestore.SetHeartbeat(b, 200*time.Millisecond)
	goroutines := runtime.NumGoroutine()
	take(t, a, "order")
	if n, listens := sqlitestore.Waits(b); n != 0 || listens {
		t.Errorf("%d wait, listens %v: want neither before somebody waits", n, listens)
	}
	for range 20 {
		queue(t, b, "order")
	}
	if n, listens := sqlitestore.Waits(b); n != 20 || !listens {
		t.Errorf("%d wait, listens %v: want 20 and yes", n, listens)
	}
	if now := runtime.NumGoroutine(); now > goroutines+1 {
		t.Errorf("%d goroutines more than before, want one", now-goroutines)
	}
	// The waiters never ask again.
	eventually(t, "nobody waits and nothing listens", func() bool {
		n, listens := sqlitestore.Waits(b)
		return n == 0 && !listens && runtime.NumGoroutine() <= goroutines
	})
	queue(t, b, "order") // listens again
	if n, listens := sqlitestore.Waits(b); n != 1 || !listens {
		t.Errorf("%d wait, listens %v: want 1 and yes", n, listens)
	}
}

// A waiter that is pushed to asks only as often as it must to keep its place, at every place in the
// queue. A handle that cannot listen asks more often.
func TestOnlyAHandleThatCannotListenPolls(t *testing.T) {
	path := newPath(t)
	a, b, deaf := open(t, path), open(t, path), open(t, path)
	sqlitestore.Deafen(deaf)
	take(t, a, "order")
	take(t, a, "other")
	for place := 1; place <= 3; place++ {
		if again := refused(t, b, suites.Queued("order")).Again; again < 500*time.Millisecond || again > time.Second {
			t.Errorf("place %d: Again %v, want a third of the heartbeat of 2s", place, again)
		}
	}
	if again := refused(t, deaf, suites.Queued("other")).Again; again > 100*time.Millisecond {
		t.Errorf("Again %v, want a short time", again)
	}
}

// Expired names that are never used again are removed step by step.
func TestDeadNamesDoNotPileUp(t *testing.T) {
	w := newHost(t)
	s := w.open()
	for i := range 500 {
		req := request(fmt.Sprintf("dead:%03d", i))
		req.TTL = time.Second
		w.take(s, req)
		if i%10 == 0 {
			queue(t, s, req.Name)
		}
		w.pass(time.Millisecond)
	}
	live := request("live")
	live.TTL = 24 * time.Hour
	w.take(s, live)
	for range 30 {
		w.pass(time.Second)
		w.pair(s)
	}
	wantRows(t, w.path, "names: live")
}

// A program that only opens the file, locks once and ends must sweep too.
func TestOpenContinuesTheSweep(t *testing.T) {
	w := newHost(t)
	s := w.open()
	for i := range 1200 { // more than one Open sweeps
		req := request(fmt.Sprintf("dead:%04d", i))
		req.TTL = time.Hour
		w.take(s, req)
		w.pass(time.Microsecond)
	}
	s.Close()
	w.pass(2 * time.Hour)
	for range 2 {
		w.open().Close()
	}
	wantRows(t, w.path)
}
