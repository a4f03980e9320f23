package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/fleet"
)

// settings are the numbers of the demonstration.
type settings struct{ ttl time.Duration }

// run suspends a process in two parts, and returns one line about their results.
func (s *settings) run(stage *fleet.Stage) (proof string, err error) {
	file := &storage{path: filepath.Join(stage.Folder, "unfenced.txt")}
	unfenced, outcome, err := s.play(stage, "lock, but no fence", file, file.unfenced())
	switch {
	case err != nil:
		return "", fmt.Errorf("without a fence: %w", err)
	case strings.HasPrefix(outcome, "write refused"):
		return "", fmt.Errorf("without a fence: a ended with %q: nothing should have refused its write", outcome)
	case unfenced == 0 || unfenced == reportLines:
		return "", fmt.Errorf("without a fence: the file has %d of %d lines of a: want it to be corrupt", unfenced, reportLines)
	}

	file = &storage{path: filepath.Join(stage.Folder, "fenced.txt")}
	fenced, outcome, err := s.play(stage, "lock and fence", file, file.fenced())
	switch {
	case err != nil:
		return "", fmt.Errorf("with a fence: %w", err)
	case !strings.HasPrefix(outcome, "write refused"):
		return "", fmt.Errorf("with a fence: a ended with %q: want its write to be refused", outcome)
	case fenced != 0:
		return "", fmt.Errorf("with a fence: the file has %d lines of a: want none", fenced)
	}
	return fmt.Sprintf("a holder suspended beyond its TTL of %v: its write is refused, the file has %d of %d lines of the new holder (without the fence: %d of %d, corrupt)",
		s.ttl, reportLines-fenced, reportLines, reportLines-unfenced, reportLines), nil
}

// play lets a write half of the report, suspends it, lets b write the report, and wakes a. It
// returns how many lines of the file a wrote in the end, and what a printed about its write.
func (s *settings) play(stage *fleet.Stage, title string, file *storage, handler http.Handler) (linesOfA int, outcome string, err error) {
	f := stage.Part(title)
	defer f.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, "", err
	}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	defer server.Close()

	args := []string{"-storage", "http://" + listener.Addr().String(), "-ttl", s.ttl.String()}
	f.Start("a", append(slices.Clip(args), "-author", "a", "-pause", "4")...)
	f.Start("b", append(slices.Clip(args), "-author", "b")...)
	f.Await("a", "ready")
	f.Await("b", "ready")
	f.Tell("a", "write")
	f.Await("a", "is at line")
	f.Suspend("a")
	f.Tell("b", "write")
	f.Await("b", "ended: report written")
	f.Resume("a")
	f.Tell("a", "go on")
	outcome = f.Await("a", "ended: ")
	f.Finish("a")
	f.Finish("b")
	f.Do(func() error {
		text, err := os.ReadFile(file.path)
		fmt.Fprintln(stage.Out, "   the file:")
		for line := range strings.Lines(string(text)) {
			fmt.Fprint(stage.Out, "     ", line)
			if strings.HasSuffix(line, " by a\n") {
				linesOfA++
			}
		}
		return err
	})
	return linesOfA, outcome, f.Err()
}
