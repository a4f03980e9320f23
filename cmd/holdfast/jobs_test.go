//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// jobLife limits how long a job runs if a test fails to end it.
const jobLife = time.Minute

// playJob is the main function of the test binary when it runs as a job.
func playJob(part string, args []string) {
	switch part {
	case "beat": // writes beats, and ignores requests to end
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		beat(args[0], args[1])
	case "catch": // writes the signals that it gets, until TERM
		got := make(chan os.Signal, 64)
		signal.Notify(got)
		f, err := os.Create(args[0])
		if err != nil {
			os.Exit(1)
		}
		for sig := range got {
			fmt.Fprintf(f, "<%d>", int(sig.(syscall.Signal)))
			if sig == syscall.SIGTERM {
				os.Exit(5)
			}
		}
	case "escape": // leaves a daemon, in a session of its own and without a parent
		again := exec.Command(os.Args[0], args...)
		again.Env = append(os.Environ(), "HOLDFAST_TEST_JOB=beat")
		again.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := again.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// beat appends a name and the time to a file, every few milliseconds.
func beat(file, name string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for end := time.Now().Add(jobLife); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		fmt.Fprintf(f, "%s %d\n", name, time.Now().UnixNano())
	}
}

// beats returns the times of the first and the last beat that a job with this name wrote.
func (s *site) beats(name string) (first, last time.Time) {
	s.t.Helper()
	for line := range strings.SplitSeq(s.read("beats"), "\n") {
		beatName, at, _ := strings.Cut(line, " ")
		if beatName != name {
			continue
		}
		ns, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			continue // an incomplete line
		}
		last = time.Unix(0, ns)
		if first.IsZero() {
			first = last
		}
	}
	return first, last
}

// beating waits for the first beat of the job with this name.
func (s *site) beating(name string) {
	s.t.Helper()
	until(s.t, name+" beats", func() bool { _, last := s.beats(name); return !last.IsZero() })
}

// silent checks that the job with this name writes no more beats.
func (s *site) silent(name string) {
	s.t.Helper()
	_, before := s.beats(name)
	time.Sleep(100 * time.Millisecond)
	if _, after := s.beats(name); after.After(before) {
		s.t.Fatalf("%s still beats", name)
	}
}

// beatArgs returns the command line of a job that runs one part of playJob.
func (s *site) beatArgs(part, name string) []string {
	return []string{"env", "HOLDFAST_TEST_JOB=" + part, os.Args[0], s.path("beats"), name}
}

// show returns the output of holdfast show.
func (s *site) show(name string) lockJSON {
	s.t.Helper()
	return decode[lockJSON](s.t, s.ok("show", "--json", name))
}

// ok runs holdfast, which must exit with 0, and returns its output.
func (s *site) ok(args ...string) string {
	s.t.Helper()
	p := s.run(args...)
	p.wantCode(0)
	return p.out.String()
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

// events parses the JSON lines of a run.
func (s *site) events(text string) []event {
	s.t.Helper()
	var all []event
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		all = append(all, decode[event](s.t, line))
	}
	return all
}

// kinds lists the kinds of events, except renewals and errors, whose number is random.
func kinds(events []event) string {
	var all []string
	for _, e := range events {
		if e.Event != "renewed" && e.Event != "error" {
			all = append(all, e.Event)
		}
	}
	return strings.Join(all, " ")
}
