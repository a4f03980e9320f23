// Pause shows the failure that no lock can prevent. A process that holds a lock is suspended in the middle
// of writing a file. Its lease ends, and another process takes the lock and writes the file. Then the first
// process wakes up and continues. Without a fence, the file contains lines of both. With one, the file server
// refuses the write of the first process, because its fencing token is older than that of the second.
//
// Copy writer.go, the holder's side, and storage.go, the side of the resource.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
	"github.com/holdfast-lock/holdfast/fence"
)

var example = fleet.Example{Name: "pause", Instance: instance, Play: play}

func main() { example.Main() }

func instance(i *fleet.Instance) error {
	w := &writer{locks: i.Locks, storage: i.Args[0], author: i.Name, before: func(line int) {
		if i.Is("pause") && line == reportLines/2+1 {
			i.Stop("in the middle of the report")
		}
	}}
	switch err := w.writeReport(i.Ctx); {
	case errors.Is(err, fence.ErrStale):
		fmt.Println("ended: write refused:", err)
	case errors.Is(err, holdfast.ErrLost):
		fmt.Println("ended: all lines written, but the lock was lost meanwhile")
	case err != nil:
		return err
	default:
		fmt.Println("ended: report written")
	}
	return nil
}

// play suspends a process in two parts.
func play(s *fleet.Stage) (proof string) {
	file := new(storage)
	unfenced, outcome := suspended(s, "lock, but no fence", file, file.unfenced())
	s.Want(strings.HasPrefix(outcome, "all lines written"), "a ended with %q", outcome)
	s.Want(unfenced > 0 && unfenced < reportLines, "the file has %d of %d lines of a: want it to be corrupt", unfenced, reportLines)

	file = new(storage)
	fenced, outcome := suspended(s, "lock and fence", file, file.fenced())
	s.Want(strings.HasPrefix(outcome, "write refused"), "a ended with %q: want its write to be refused", outcome)
	s.Want(fenced == 0, "the file has %d lines of a: want none", fenced)
	return fmt.Sprintf("a holder suspended beyond its TTL of %v: its write is refused, the file has %d of %d lines of the new holder (without the fence: %d of %d, corrupt)",
		fleet.Short, reportLines-fenced, reportLines, reportLines-unfenced, reportLines)
}

// suspended lets a write half of the report, suspends it, lets b write the report, and wakes a. It
// returns how many lines of the file a wrote in the end, and what a printed about its write.
func suspended(s *fleet.Stage, title string, file *storage, handler http.Handler) (linesOfA int, outcome string) {
	s.Part(title, "")
	s.TTL = fleet.Short
	server := httptest.NewServer(handler)
	defer server.Close()
	s.Ready("a", server.URL, "pause")
	s.Ready("b", server.URL)
	s.Tell("start", "a")
	s.Suspend("a", "in the middle of the report")
	s.Tell("start", "b")
	s.Await("ended: report written", "b")
	s.Resume("a")
	outcome = s.Await("ended: ", "a").Text
	s.AwaitEnd("a", "b")
	fmt.Fprintln(s.Out, "   the file:")
	for _, line := range file.lines {
		fmt.Fprintln(s.Out, "    ", line)
		if strings.HasSuffix(line, " by a") {
			linesOfA++
		}
	}
	return linesOfA, outcome
}
