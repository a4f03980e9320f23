//go:build unix

package main

import (
	"os"
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
	w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = w.Write(make([]byte, 4096))
	}
	if err := syscall.SetNonblock(int(w.Fd()), false); err != nil {
		t.Fatal(err)
	}
	return w
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
