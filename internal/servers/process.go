package servers

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// startLimit is far above what any server needs on a busy machine: reaching it means
	// that the server will never answer.
	startLimit = 30 * time.Second

	// exitLimit bounds the wait for a process that was told to end.
	exitLimit = 10 * time.Second

	// logTail is how much of a server's log a failure shows.
	logTail = 2000
)

// A program is what a server consists of: how to prepare, start and ask it.
type program struct {
	binary string
	args   []string
	env    []string         // added to the environment of the test
	init   func(dir string) // fills an empty data folder, if the server does not do it itself
	ready  func() error     // one attempt to use the server, bounded in time
	halt   syscall.Signal   // asks for an orderly end; SIGTERM unless set
	paths  []string         // folders to search before PATH
}

// A Process is a server that runs as a child of the test, in a process group of its own.
// Its methods may be used by several goroutines.
type Process struct {
	t    testing.TB
	prog program
	path string
	dir  string // holds the log and, in data, what the server stores

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{} // closed when cmd is gone
	meant   bool          // the test ended it
	stopped bool
}

// newProcess prepares a server; launch starts it.
func newProcess(t testing.TB, dir string, prog program) *Process {
	t.Helper()
	p := &Process{t: t, prog: prog, path: lookup(t, prog), dir: dir}
	if err := os.MkdirAll(p.DataDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if prog.init != nil {
		prog.init(p.DataDir())
	}
	return p
}

// lookup finds the program of a server.
func lookup(t testing.TB, prog program) string {
	t.Helper()
	for _, dir := range prog.paths {
		if path, err := exec.LookPath(filepath.Join(dir, prog.binary)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(prog.binary)
	if err != nil {
		t.Fatalf("%s is not installed; run: make deps", prog.binary)
	}
	return path
}

// launch starts the server and returns before it is ready, so that several can start at
// once. It is stopped when the test ends.
func (p *Process) launch() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.prog.args...)
	cmd.Dir = p.DataDir()
	cmd.Env = append(os.Environ(), p.prog.env...)
	cmd.Stdout, cmd.Stderr = log, log // a file: no goroutine copies
	cmd.SysProcAttr = childAttributes()
	if err := cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.prog.binary, err)
	}
	first := p.cmd == nil
	exited := make(chan struct{})
	p.cmd, p.exited, p.meant, p.stopped = cmd, exited, false, false
	go func() {
		defer close(exited)
		cmd.Wait()
		signalGroup(cmd.Process, syscall.SIGKILL) // what it left behind
	}()
	if first {
		p.t.Cleanup(p.end)
	}
}

// await waits until the server answers.
func (p *Process) await() {
	p.t.Helper()
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	deadline := time.Now().Add(startLimit)
	for {
		err := p.prog.ready()
		if err == nil {
			return
		}
		select {
		case <-exited:
			p.t.Fatalf("%s ended while it started; its log ends with:\n%s", p.prog.binary, p.Log())
		case <-time.After(startInterval):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not answer after %v: %v; its log ends with:\n%s", p.prog.binary, startLimit, err, p.Log())
		}
	}
}

// Kill ends the server with SIGKILL and waits until it is gone. A server that does not run
// stays as it is.
func (p *Process) Kill() {
	p.t.Helper()
	p.finish(syscall.SIGKILL)
}

// Shutdown ends the server as an administrator would, and waits until it is gone.
func (p *Process) Shutdown() {
	p.t.Helper()
	p.Continue()
	halt := p.prog.halt
	if halt == 0 {
		halt = syscall.SIGTERM
	}
	p.finish(halt)
}

// Stop suspends the server with SIGSTOP, and waits until it is: connections stay open and
// nothing answers.
func (p *Process) Stop() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.signal(signalStop); err != nil {
		p.t.Fatalf("stop %s: %v", p.prog.binary, err)
	}
	p.stopped = true
	for deadline := time.Now().Add(exitLimit); !asleep(p.cmd.Process.Pid); time.Sleep(startInterval) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s runs %v after SIGSTOP", p.prog.binary, exitLimit)
		}
	}
}

// Continue lets a stopped server go on. A server that was not stopped stays as it is.
func (p *Process) Continue() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped || !p.running() {
		return
	}
	if err := p.signal(signalContinue); err != nil {
		p.t.Fatalf("continue %s: %v", p.prog.binary, err)
	}
	p.stopped = false
}

// Restart starts the server again with its data, on the same port, and waits until it
// answers. A server that runs is killed first.
func (p *Process) Restart() {
	p.t.Helper()
	p.Kill()
	p.launch()
	p.await()
}

// Wipe is a Restart with all data lost.
func (p *Process) Wipe() {
	p.t.Helper()
	p.Kill()
	if err := os.RemoveAll(p.DataDir()); err != nil {
		p.t.Fatal(err)
	}
	if err := os.MkdirAll(p.DataDir(), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if p.prog.init != nil {
		p.prog.init(p.DataDir())
	}
	p.launch()
	p.await()
}

// Running reports whether the process lives; a stopped one does.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running()
}

// PID is the process id of the server, or of the one that ran last.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// DataDir is the folder of the server's data, which Wipe empties.
func (p *Process) DataDir() string { return filepath.Join(p.dir, "data") }

// Log is the end of what the server printed.
func (p *Process) Log() string {
	log, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	if len(log) > logTail {
		log = log[len(log)-logTail:]
		_, log, _ = bytes.Cut(log, []byte("\n")) // the first line is not whole
	}
	return strings.TrimSpace(string(log))
}

func (p *Process) logFile() string { return filepath.Join(p.dir, "log") }

// finish sends a signal that ends the server, and waits for that.
func (p *Process) finish(sig syscall.Signal) {
	p.t.Helper()
	p.mu.Lock()
	exited := p.exited
	if !p.running() {
		p.mu.Unlock()
		return
	}
	p.meant = true
	err := p.signal(sig)
	p.mu.Unlock()
	if err != nil {
		p.t.Fatalf("end %s: %v", p.prog.binary, err)
	}
	select {
	case <-exited:
	case <-time.After(exitLimit):
		p.t.Fatalf("%s lives %v after %v; its log ends with:\n%s", p.prog.binary, exitLimit, sig, p.Log())
	}
}

// end stops the server with the test, and tells what may explain a failure.
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

// running needs the mutex.
func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// awake reports whether it is worth asking the server anything.
func (p *Process) awake() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running() && !p.stopped
}

// signal needs the mutex.
func (p *Process) signal(sig syscall.Signal) error {
	if !p.running() {
		return errors.New("it does not run")
	}
	return signalGroup(p.cmd.Process, sig)
}
