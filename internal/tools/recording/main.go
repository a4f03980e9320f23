//go:build linux

// Command recording records two jobs that compete for a lock, and holdfast watch beside them, and
// writes an animated picture for the README:
//
//	go run ./internal/tools/recording -out docs/watch.svg
//
// The jobs are real processes on an SQLite file. Each has a host name of its own, which needs
// root.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// length is the duration of the recording.
const length = 13 * time.Second

func main() {
	out := flag.String("out", filepath.Join("docs", "watch.svg"), "`file` to write")
	flag.Parse()
	if err := run(context.Background(), *out); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string) error {
	dir, err := os.MkdirTemp("", "recording-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &stage{dir: dir}
	if text, err := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "holdfast"), "./cmd/holdfast").CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, text)
	}
	backup := "#!/bin/sh\nfor part in users orders invoices; do echo \"$(hostname): backing up $part, token $HOLDFAST_TOKEN\"; sleep 1.3; done\n"
	if err := os.WriteFile(filepath.Join(dir, "backup.sh"), []byte(backup), 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, length+5*time.Second)
	defer cancel()
	defer s.wait()
	defer cancel()
	for host, args := range map[string]string{
		"api-1": "run -s catalog -- sleep 60",
		"api-2": "run -s catalog -- sleep 60",
		"gpu-7": "run --slots 3 encoder -- sleep 60",
		"ci-2":  "run --meta release-1.4 deploy -- sleep 60",
	} {
		if err := s.start(ctx, io.Discard, host, args); err != nil {
			return err
		}
	}
	time.Sleep(time.Second)

	first := &pane{title: "web-1", lines: 5}
	second := &pane{title: "web-2", lines: 5}
	third := &pane{title: "another terminal", lines: 9, clear: true}
	panes := []*pane{first, second, third}
	const command = "run -v backup -- ./backup.sh"
	begin := time.Now()
	for _, p := range panes {
		p.begin = begin
		p.prompt("")
	}
	third.prompt("holdfast watch")
	if err := s.start(ctx, third, "laptop", "watch --interval 500ms"); err != nil {
		return err
	}
	for i, p := range []*pane{first, second} {
		time.Sleep(time.Until(begin.Add(time.Duration(i+1) * 1500 * time.Millisecond)))
		p.prompt("holdfast " + command)
		if err := s.start(ctx, p, p.title, command); err != nil {
			return err
		}
	}
	time.Sleep(time.Until(begin.Add(length)))
	return os.WriteFile(out, []byte(draw(panes)), 0o644)
}

// A stage runs commands.
type stage struct {
	dir     string
	running sync.WaitGroup
}

// start runs holdfast on a host.
func (s *stage) start(ctx context.Context, out io.Writer, host, args string) error {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `hostname "$1" && shift && exec "$@"`, "sh", host, filepath.Join(s.dir, "holdfast")}, strings.Fields(args)...)...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE=sqlite:"+filepath.Join(s.dir, "locks.db"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("a host name of its own for %s: %w", host, err)
	}
	s.running.Go(func() {
		cmd.Wait()
		if p, ok := out.(*pane); ok {
			p.prompt("")
		}
	})
	return nil
}

func (s *stage) wait() { s.running.Wait() }

// A pane is a terminal. It records the text that is printed, and the time.
type pane struct {
	title string
	lines int
	clear bool // every list replaces the previous one
	begin time.Time

	mu     sync.Mutex
	screen []string
	list   []string // the list that is being printed, if clear is set
	frames []frame
}

// A frame is what a pane shows from a certain time on.
type frame struct {
	from  time.Duration
	lines []string
}

const shell = "$ "

// prompt shows a prompt, or adds a typed command to the prompt that is there.
func (p *pane) prompt(command string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.screen); n > 0 && p.screen[n-1] == shell {
		p.screen = p.screen[:n-1]
	}
	p.show(shell + command)
}

// show adds a line. Callers hold the mutex.
func (p *pane) show(line string) {
	p.screen = append(p.screen, line)
	p.frames = append(p.frames, frame{time.Since(p.begin), p.visible()})
}

func (p *pane) visible() []string {
	lines := p.screen[max(0, len(p.screen)-p.lines):]
	return append([]string(nil), lines...)
}

// Write is called with whole lines: every command prints a line or a list at once.
func (p *pane) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for lines := bufio.NewScanner(strings.NewReader(string(data))); lines.Scan(); {
		switch line := lines.Text(); {
		case !p.clear:
			p.show(line)
		case line == "": // the end of a list
			p.screen = append([]string{p.screen[0]}, p.list...)
			p.list = nil
			p.frames = append(p.frames, frame{time.Since(p.begin), p.visible()})
		default:
			p.list = append(p.list, line)
		}
	}
	return len(data), nil
}
