package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
type settings struct {
	store string // URL; empty for a temporary SQLite file
	ttl   time.Duration
}

// demo defines the flags of the demonstration, and returns the function that runs it on a store.
func demo() fleet.Demo {
	var s settings
	flag.DurationVar(&s.ttl, "ttl", 3*time.Second, "how long a suspended holder keeps the lock")
	return func(ctx context.Context, store string) (proof string, err error) {
		s.store = store
		return run(ctx, os.Stdout, s)
	}
}

// run suspends a process in two scenarios, and returns one line about their results.
func run(ctx context.Context, out io.Writer, s settings) (proof string, err error) {
	folder, err := os.MkdirTemp("", "pause-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if s.store == "" {
		s.store = "sqlite:" + filepath.Join(folder, "locks.db")
	}

	fmt.Fprintln(out, "\n1. lock, but no fence")
	file := &storage{path: filepath.Join(folder, "unfenced.txt")}
	unfenced, outcome, err := play(ctx, out, s, file, file.unfenced())
	switch {
	case err != nil:
		return "", fmt.Errorf("without a fence: %w", err)
	case strings.HasPrefix(outcome, "write refused"):
		return "", fmt.Errorf("without a fence: a ended with %q: nothing should have refused its write", outcome)
	case unfenced == 0 || unfenced == reportLines:
		return "", fmt.Errorf("without a fence: the file has %d of %d lines of a: want it to be corrupt", unfenced, reportLines)
	}

	fmt.Fprintln(out, "\n2. lock and fence")
	file = &storage{path: filepath.Join(folder, "fenced.txt")}
	fenced, outcome, err := play(ctx, out, s, file, file.fenced())
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
func play(ctx context.Context, out io.Writer, s settings, file *storage, handler http.Handler) (linesOfA int, outcome string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, "", err
	}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	defer server.Close()

	f := fleet.New(ctx, out, "HOLDFAST_STORE="+s.store)
	defer f.Close()
	args := []string{"-storage", "http://" + listener.Addr().String(), "-ttl", s.ttl.String()}
	if err := f.Start("a", append(slices.Clip(args), "-author", "a", "-pause", "4")...); err != nil {
		return 0, "", err
	}
	if err := f.Start("b", append(slices.Clip(args), "-author", "b")...); err != nil {
		return 0, "", err
	}
	for _, name := range []string{"a", "b"} {
		if _, err := f.Await(name, "ready"); err != nil {
			return 0, "", err
		}
	}

	if err := f.Tell("a", "write"); err != nil {
		return 0, "", err
	}
	if _, err := f.Await("a", "is at line"); err != nil {
		return 0, "", err
	}
	if err := f.Suspend("a"); err != nil {
		return 0, "", err
	}
	fmt.Fprintln(out, "   a  suspended (SIGSTOP)")
	if err := f.Tell("b", "write"); err != nil {
		return 0, "", err
	}
	if _, err := f.Await("b", "ended: report written"); err != nil {
		return 0, "", err
	}
	if err := errors.Join(f.Resume("a"), f.Tell("a", "go on")); err != nil {
		return 0, "", err
	}
	fmt.Fprintln(out, "   a  wakes up (SIGCONT)")
	if outcome, err = f.Await("a", "ended: "); err != nil {
		return 0, "", err
	}
	if err := errors.Join(f.Finish("a"), f.Finish("b")); err != nil {
		return 0, "", err
	}

	text, err := os.ReadFile(file.path)
	if err != nil {
		return 0, "", err
	}
	fmt.Fprintln(out, "   the file:")
	for line := range strings.Lines(string(text)) {
		fmt.Fprint(out, "     ", line)
		if strings.HasSuffix(line, " by a\n") {
			linesOfA++
		}
	}
	return linesOfA, outcome, ctx.Err()
}
