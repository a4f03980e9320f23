//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

// The tests run the built command as its users do, with arguments, signals, files and exit
// codes.

var until = suites.Eventually

var (
	command    string   // the built holdfast
	buildFlags []string // for go build

	// plainCommand is holdfast without the race detector, with which a process needs three times as
	// long to start.
	plainCommand = sync.OnceValues(func() (file string, err error) {
		file = command + "-plain"
		return file, build(file)
	})
)

func TestMain(m *testing.M) {
	if part := os.Getenv("HOLDFAST_TEST_JOB"); part != "" {
		playJob(part, os.Args[1:])
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("6") // the tests mostly wait
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	command = filepath.Join(dir, "holdfast")
	if err := build(command, buildFlags...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, v := range os.Environ() { // no test may use the store of the user who runs it
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "HOLDFAST_") {
			os.Unsetenv(name)
		}
	}
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) { // the shell that started the test in the background ignores it, and child processes would too
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	return m.Run()
}

// build builds the command into a file.
func build(file string, flags ...string) error {
	args := append([]string{"build", "-buildvcs=false", "-ldflags=-w", "-o", file}, flags...)
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// A site is a store for one test, and a directory for the files of its jobs.
type site struct {
	t     *testing.T
	dir   string
	env   []string
	file  string      // the holdfast that it runs
	store store.Store // that open has opened
}

func newSite(t *testing.T) *site {
	t.Parallel()
	dir := t.TempDir()
	return &site{t: t, dir: dir, file: command, env: append(os.Environ(),
		"HOLDFAST_STORE=sqlite:"+filepath.Join(dir, "locks.db"), "DIR="+dir, "TERM=xterm", "PS1=", "LC_ALL=C",
		"PATH="+filepath.Dir(command)+":"+os.Getenv("PATH"))}
}

// newPlainSite is like newSite, for tests that start many processes with little concurrency.
func newPlainSite(t *testing.T) *site {
	s := newSite(t)
	file, err := plainCommand()
	if err != nil {
		t.Fatal(err)
	}
	s.file = file
	return s
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// A process is a process that a test has started.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err suites.Text
	ended    chan struct{}
}

// command prepares holdfast with these arguments.
func (s *site) command(args ...string) *process { return s.program(s.file, args...) }

// program prepares a program, which finds holdfast in PATH.
func (s *site) program(file string, args ...string) *process {
	p := &process{t: s.t, cmd: exec.Command(file, args...), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = s.env, s.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	return p
}

// start starts the process. It ends with the test.
func (p *process) start() *process {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	p.t.Cleanup(func() {
		select {
		case <-p.ended:
		default:
			p.cmd.Process.Signal(syscall.SIGCONT)
			p.cmd.Process.Kill() // the guard kills the job
			<-p.ended
		}
		if p.t.Failed() {
			p.t.Logf("%s\nstdout: %s\nstderr: %s", p.cmd, &p.out, &p.err)
		}
	})
	return p
}

// start starts holdfast.
func (s *site) start(args ...string) *process {
	s.t.Helper()
	return s.command(args...).start()
}

// run runs holdfast and waits for its end.
func (s *site) run(args ...string) *process {
	s.t.Helper()
	p := s.start(args...)
	p.wait()
	return p
}

// wait waits for the end and returns the exit code, or the negated number of the signal that
// ended it.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(suites.Patience):
		p.t.Fatalf("%s does not end\nstdout: %s\nstderr: %s", p.cmd, &p.out, &p.err)
	}
	return p.code()
}

func (p *process) code() int {
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return -int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// wantCode waits for the end and checks the exit code.
func (p *process) wantCode(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Fatalf("%s: exit code %d, want %d\nstdout: %s\nstderr: %s", p.cmd, got, code, &p.out, &p.err)
	}
}

// wantErr checks that stderr is one line that contains all these parts.
func (p *process) wantErr(parts ...string) {
	p.t.Helper()
	got := p.err.String()
	if strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "holdfast: ") {
		p.t.Fatalf("%s: stderr is not one line: %q", p.cmd, got)
	}
	p.wantErrParts(parts...)
}

func (p *process) wantErrParts(parts ...string) {
	p.t.Helper()
	for _, part := range parts {
		if !strings.Contains(p.err.String(), part) {
			p.t.Fatalf("%s: stderr does not say %q: %s", p.cmd, part, &p.err)
		}
	}
}

func (s *site) read(name string) string {
	text, err := os.ReadFile(s.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return string(text)
}

// write writes a file, which may be a script. The mutex keeps other tests from starting processes
// meanwhile, because they would inherit the open file, and a script that is open for writing
// cannot be executed.
func (s *site) write(name, text string) {
	s.t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(s.path(name), []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// exists waits until a job has written a file.
func (s *site) exists(name string) {
	s.t.Helper()
	until(s.t, "file "+name, func() bool { _, err := os.Stat(s.path(name)); return err == nil })
}

// pid waits until a job has written a number, and returns it.
func (s *site) pid(name string) int {
	s.t.Helper()
	until(s.t, "a number in "+name, func() bool { return strings.HasSuffix(s.read(name), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(s.read(name)))
	if err != nil {
		s.t.Fatal(err)
	}
	return pid
}

// dead reports whether a process has ended, or is a zombie.
func dead(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return len(out) == 0 || out[0] == 'Z'
}

// hold starts a run that holds a lock until the file "go" exists, and waits until it is held.
func (s *site) hold(name string, flags ...string) *process {
	s.t.Helper()
	args := append([]string{"run"}, flags...)
	args = append(args, name, "-c", `echo $$ >"$DIR/held.$HOLDFAST_NAME"; while [ ! -e "$DIR/go" ]; do sleep 0.02; done`)
	p := s.start(args...)
	s.exists("held." + name)
	return p
}

// waiting waits until a lock has n waiters.
func (s *site) waiting(name string, n int) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%s has %d waiters", name, n), func() bool { return len(s.look(name).Waiters) == n })
}

// held waits until a lock has a holder.
func (s *site) held(name string) {
	s.t.Helper()
	until(s.t, name+" is held", func() bool { return len(s.look(name).Holders) == 1 })
}

// open opens the store of the site in the test itself.
func (s *site) open() store.Store {
	s.t.Helper()
	if s.store == nil {
		st, err := sqlitestore.Open(s.t.Context(), s.path("locks.db"))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { st.Close() })
		s.store = st
	}
	return s.store
}

// look reads a lock from the store of the site. It is called often, and running holdfast each
// time would slow down the other processes.
func (s *site) look(name string) store.Lock {
	s.t.Helper()
	page, err := s.open().List(s.t.Context(), store.Query{Name: name})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(page.Locks) == 0 {
		return store.Lock{}
	}
	return page.Locks[0]
}

func (s *site) stat(name string) (os.FileInfo, error) { return os.Stat(s.path(name)) }

func hostname(t *testing.T) string {
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func kill(pid int) { syscall.Kill(pid, syscall.SIGKILL) }
