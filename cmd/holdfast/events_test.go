//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// stalledPipe returns the writing end of a pipe that is full and is not read.
func stalledPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	fill(w)
	if err := syscall.SetNonblock(int(w.Fd()), false); err != nil {
		t.Fatal(err)
	}
	return w
}

// fill writes to a pipe until it is full.
func fill(w *os.File) {
	for size := 4096; size > 0; size /= 16 {
		w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		for err := error(nil); err == nil; {
			_, err = w.Write(make([]byte, size))
		}
	}
}

// fifo returns the reading end and two writing ends of a pipe. Filling it through the second one does not
// change the first one, which a process may use.
func fifo(t *testing.T) (r, w, filler *os.File) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ends := make([]*os.File, 3)
	for i, flags := range []int{os.O_RDONLY | syscall.O_NONBLOCK, os.O_WRONLY, os.O_WRONLY | syscall.O_NONBLOCK} {
		end, err := os.OpenFile(path, flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end.Close() })
		ends[i] = end
	}
	if err := syscall.SetNonblock(int(ends[1].Fd()), false); err != nil {
		t.Fatal(err)
	}
	return ends[0], ends[1], ends[2]
}

// There is an event for each renewal, and one right after the start.
func TestALockIsRenewedEvenIfTheEventsAreNotRead(t *testing.T) {
	for _, flags := range [][]string{{"--json"}, {"--verbose"}} {
		t.Run(flags[0], func(t *testing.T) {
			s := newSite(t)
			p := s.command(append([]string{"run", "--ttl", "6s", "a", "-c", `sleep 7; echo done`}, flags...)...)
			p.cmd.Stderr = stalledPipe(t)
			p.start()
			p.wantCode(0)
			if p.out.String() != "done\n" {
				t.Errorf("stdout: %q", &p.out)
			}
		})
	}
}

func TestEventsThatAreNotReadAreDropped(t *testing.T) {
	report := newReporter("a")
	report.json = stalledPipe(t)
	for range 5000 {
		report.emit(event{Event: "renewed"}) // must not block
	}
}
