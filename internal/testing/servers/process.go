package servers

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

const (
	startLimit    = 30 * time.Second      // far longer than any server needs to start on a busy machine
	startInterval = 2 * time.Millisecond  // short compared with the start of a server, which takes some 10 ms
	pollInterval  = 10 * time.Millisecond // longer, because one attempt may query many servers on the same machine
	exitLimit     = 10 * time.Second      // bounds the wait for the end of a process
	logTail       = 2000                  // how many bytes of a server's log a failure shows
)

// A program describes how to prepare and start a server, and how to check that it is ready.
type program struct {
	binary string
	args   []string
	env    []string         // added to the environment of the test
	init   func(dir string) // initializes an empty data folder, if the server does not do so itself
	ready  func() error     // one attempt to use the server, bounded in time
	paths  []string         // folders to search before PATH

	attr    *syscall.SysProcAttr                        // instead of childAttributes, if set
	signals func(p *os.Process, s syscall.Signal) error // instead of signalGroup, if set
}

// A Process is a server in its own process group. Its methods are safe for concurrent use.
type Process struct {
	Port int // on the loopback interface, for clients

	t    testing.TB
	prog program
	path string
	dir  string // contains the log, and the server's data in the folder data

	mu      sync.Mutex
	cmd     *exec.Cmd
	life    context.Context // of cmd
	meant   bool            // the test ended it
	stopped bool
}

// newProcess returns a server with a port and a folder, for prepare.
func newProcess(t testing.TB) *Process {
	t.Helper()
	return &Process{Port: ports.Reserve(t), t: t, dir: t.TempDir()}
}

// prepare sets the program of a server, and initializes its data; launch starts it.
func (p *Process) prepare(prog program) {
	p.t.Helper()
	p.prog, p.path = prog, lookup(p.t, prog)
	p.initialize()
}

// write writes a file into the folder of a server, and returns its path.
func (p *Process) write(name string, lines []string) (path string) {
	p.t.Helper()
	path = filepath.Join(p.dir, name)
	must(p.t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return path
}

func (p *Process) initialize() {
	p.t.Helper()
	must(p.t, os.MkdirAll(p.DataDir(), 0o700))
	if p.prog.init != nil {
		p.prog.init(p.DataDir())
	}
}

func must(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func lookup(t testing.TB, prog program) string {
	t.Helper()
	for _, dir := range slices.Concat(prog.paths, []string{""}) { // the last is PATH
		if path, err := exec.LookPath(filepath.Join(dir, prog.binary)); err == nil {
			return path
		}
	}
	t.Fatalf("%s is not installed; run: make deps", prog.binary)
	return ""
}

func (prog *program) command(path, dir string) *exec.Cmd {
	cmd := exec.Command(path, prog.args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, append(os.Environ(), prog.env...), prog.attr
	return cmd
}

// runTool runs a program that ends by itself.
func runTool(t testing.TB, prog program) {
	t.Helper()
	if out, err := prog.command(lookup(t, prog), "/").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", prog.binary, err, out)
	}
}

// Addr returns the address for clients, as 127.0.0.1:port.
func (p *Process) Addr() string { return ports.Addr(p.Port) }

// A group is the servers of a cluster.
type group[S interface{ Addr() string }] struct {
	Nodes []S
	t     testing.TB
}

// Addrs returns the addresses of the servers for clients.
func (g *group[S]) Addrs() []string {
	list := make([]string, len(g.Nodes))
	for i, node := range g.Nodes {
		list[i] = node.Addr()
	}
	return list
}

// awake returns the servers that are running and not stopped.
func awake[S interface{ awake() bool }](nodes []S) []S {
	return slices.DeleteFunc(slices.Clone(nodes), func(node S) bool { return !node.awake() })
}

// startAll starts servers concurrently, and waits until all of them are ready.
func startAll[S interface {
	launch()
	await()
}](nodes ...S) {
	for _, node := range nodes {
		node.launch()
	}
	for _, node := range nodes {
		node.await()
	}
}

// launch starts the server, which is stopped when the test ends, and returns before it is ready.
func (p *Process) launch() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(p.t, err)
	defer log.Close()
	cmd := p.prog.command(p.path, p.DataDir())
	cmd.Stdout, cmd.Stderr = log, log // files, so that no goroutine has to copy
	cmd.SysProcAttr = cmp.Or(cmd.SysProcAttr, childAttributes())
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.prog.binary, err)
	}
	if p.cmd == nil {
		p.t.Cleanup(p.end)
	}
	life, ended := context.WithCancel(context.Background())
	p.cmd, p.life, p.meant, p.stopped = cmd, life, false, false
	go func() {
		defer ended()
		cmd.Wait()
		signalGroup(cmd.Process, syscall.SIGKILL) // ends remaining children
	}()
}

func (p *Process) await() {
	p.t.Helper()
	for deadline := time.Now().Add(startLimit); ; time.Sleep(startInterval) {
		err := p.prog.ready()
		switch {
		case err == nil:
			return
		case !p.Running():
			p.t.Fatalf("%s ended while it started; its log ends with:\n%s", p.prog.binary, p.Log())
		case time.Now().After(deadline):
			p.t.Fatalf("%s does not answer after %v: %v; its log ends with:\n%s", p.prog.binary, startLimit, err, p.Log())
		}
	}
}

// Kill ends the server with SIGKILL and waits for its end, if the server is running.
func (p *Process) Kill() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return
	}
	p.meant = true
	p.signal("end", syscall.SIGKILL)
	select {
	case <-p.life.Done():
	case <-time.After(exitLimit):
		p.t.Fatalf("%s lives %v after SIGKILL; its log ends with:\n%s", p.prog.binary, exitLimit, p.Log())
	}
}

// Stop suspends the server with SIGSTOP and waits until it is. Its connections stay open.
func (p *Process) Stop() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal("stop", signalStop)
	p.stopped = true
	for deadline := time.Now().Add(exitLimit); !asleep(p.cmd.Process.Pid); time.Sleep(startInterval) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s runs %v after SIGSTOP", p.prog.binary, exitLimit)
		}
	}
}

// Continue resumes a stopped server. It does nothing if the server is not stopped.
func (p *Process) Continue() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped || !p.running() {
		return
	}
	p.signal("continue", signalContinue)
	p.stopped = false
}

// Restart kills a running server, and starts it again with its data on the same port.
func (p *Process) Restart() {
	p.t.Helper()
	p.Kill()
	startAll(p)
}

// Wipe restarts the server without its data.
func (p *Process) Wipe() {
	p.t.Helper()
	p.Kill()
	must(p.t, os.RemoveAll(p.DataDir()))
	p.initialize()
	startAll(p)
}

// Running reports whether the process exists. A stopped process counts as running.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// PID returns the process ID of the server, or of its last process.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// DataDir returns the folder of the server's data, which Wipe empties.
func (p *Process) DataDir() string { return filepath.Join(p.dir, "data") }

// Log returns the end of the server's output.
func (p *Process) Log() string {
	log, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	if len(log) > logTail {
		log = log[len(log)-logTail:]
		_, log, _ = bytes.Cut(log, []byte("\n")) // the first line is incomplete
	}
	return strings.TrimSpace(string(log))
}

func (p *Process) logFile() string { return filepath.Join(p.dir, "log") }

// end stops the server at the end of the test, and logs its output if it crashed or the test failed.
func (p *Process) end() {
	p.mu.Lock()
	crashed := !p.running() && !p.meant
	p.mu.Unlock()
	p.Kill()
	switch {
	case crashed:
		p.t.Logf("%s ended by itself: %v; its log ends with:\n%s", p.prog.binary, p.cmd.ProcessState, p.Log())
	case p.t.Failed():
		p.t.Logf("log of %s (process %d) ends with:\n%s", p.prog.binary, p.PID(), p.Log())
	}
}

// running is like Running. The caller holds the mutex.
func (p *Process) running() bool { return p.cmd != nil && p.life.Err() == nil }

// awake reports whether the server is running and not stopped.
func (p *Process) awake() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running() && !p.stopped
}

// signal sends a signal to the server. The caller holds the mutex.
func (p *Process) signal(what string, sig syscall.Signal) {
	p.t.Helper()
	send := signalGroup
	if p.prog.signals != nil {
		send = p.prog.signals
	}
	err := errors.New("it does not run")
	if p.running() {
		err = send(p.cmd.Process, sig)
	}
	if err != nil {
		p.t.Fatalf("%s %s: %v", what, p.prog.binary, err)
	}
}

// Poll calls attempt, which must be bounded in time, until it returns nil, and fails the test after limit.
func Poll(t testing.TB, limit time.Duration, attempt func() error) {
	t.Helper()
	pollFor(t, limit, func() (struct{}, error) { return struct{}{}, attempt() })
}

// pollFor is like Poll, and returns the value of the last attempt.
func pollFor[T any](t testing.TB, limit time.Duration, attempt func() (T, error)) T {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		value, err := attempt()
		if err == nil {
			return value
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %v: %v", limit, err)
		}
		time.Sleep(pollInterval)
	}
}

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
