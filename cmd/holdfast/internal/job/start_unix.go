//go:build unix

package job

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Job is a command that runs, or that is about to run.
type Job struct {
	spec     Spec
	self     string // the executable of holdfast
	group    int    // the process group of the job, which is also the ID of its first process
	alone    bool   // this process had no children when it was started
	events   chan Event
	reported chan struct{} // closed after Started or Failed was sent
	gate     *os.File      // a byte lets the job begin
	signals  chan<- os.Signal
	terminal *terminal
	reaping  sync.Once
	ended    sync.Once // sends Ended

	mu    sync.Mutex
	watch map[int]func(syscall.WaitStatus) // called when the state of the child with this process ID changes
	kill  time.Time
	guard *guard
	quick int // consecutive guards that died soon
}

// A guard is the end of holdfast in its conversation with a guard process.
type guard struct {
	pid    int
	parent bool // the guard is the parent of the job
	to     *os.File
	begun  time.Time
	heard  chan struct{} // closed when all its messages were read
	gone   chan struct{} // closed when it has ended
}

// tell sends a message. It does not wait: a guard that has been stopped for long may have a full pipe.
// A deadline would lose messages on a busy machine, if it were over before the write began.
func (g *guard) tell(message string) {
	if pipe, err := g.to.SyscallConn(); err == nil {
		pipe.Write(func(fd uintptr) bool {
			syscall.Write(int(fd), []byte(message))
			return true
		})
	}
}

// readyTime limits how long a guard may take to start.
const readyTime = 10 * time.Second

// Start starts the process of the job and its guard; Release then lets the job begin. Signals is
// the channel that was passed to Notify. It receives Ctrl-Z from now on.
//
// If the system lets a process adopt orphans, the guard is the parent of the job. Then all
// processes that the job starts stay descendants of the guard, and the guard finds them even
// after holdfast was killed. On other systems holdfast is the parent.
func Start(spec Spec, signals chan<- os.Signal) (*Job, error) {
	self, err := executablePath()
	if err != nil {
		return nil, err
	}
	j := &Job{
		spec: spec, self: self, kill: spec.Kill, alone: !hasChildren(),
		events: make(chan Event, 64), reported: make(chan struct{}), watch: make(map[int]func(syscall.WaitStatus)),
		terminal: openTerminal(), signals: signals,
	}
	adopts := adoptOrphans()
	guarded := !spec.Kill.IsZero()
	if err := j.startJob(guarded && adopts); err != nil {
		return nil, err
	}
	if guarded && !adopts {
		if err := j.startGuard(); err != nil {
			j.Abandon()
			return nil, err
		}
	}
	j.terminal.job = j.group
	if !signal.Ignored(syscall.SIGTSTP) {
		NotifyStop(signals)
	}
	return j, nil
}

// hasChildren reports whether this process has children already: a shell may have started them
// before it executed holdfast. They do not belong to the job.
func hasChildren() bool {
	_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	return !errors.Is(err, syscall.ECHILD)
}

// startJob starts the process that becomes the job, or a guard that starts it. See becomeJob.
func (j *Job) startJob(byGuard bool) error {
	gateIn, gateOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer gateIn.Close()
	reportIn, reportOut, err := os.Pipe()
	if err != nil {
		gateOut.Close()
		return err
	}
	defer reportOut.Close()
	if byGuard {
		err = j.startParent(gateIn, reportOut)
	} else {
		attr := jobAttr()
		attr.Env = j.spec.Env
		args := execArgs(fdText(gateIn), fdText(reportOut), append([]string{j.spec.Path}, j.spec.Args...))
		if j.group, err = j.start(args, attr, j.jobChanged, gateIn, reportOut); err != nil {
			err = fmt.Errorf("cannot start a process: %w", err)
		}
	}
	if err != nil {
		gateOut.Close()
		reportIn.Close()
		return err
	}
	j.gate = gateOut
	go j.report(reportIn)
	return nil
}

// execArgs returns the arguments of the process that becomes the job.
func execArgs(gate, report string, command []string) []string {
	return append([]string{"holdfast-exec", hiddenExec, gate, report}, command...)
}

// jobAttr returns the attributes of the process that becomes the job.
func jobAttr() *syscall.ProcAttr {
	return &syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
}

// start starts a process that inherits the files under the same descriptor numbers. Holdfast uses
// these numbers itself, so they are free in the child. Files that holdfast inherited keep their
// numbers, since a job may expect them.
func (j *Job) start(args []string, attr *syscall.ProcAttr, changed func(syscall.WaitStatus), files ...*os.File) (int, error) {
	j.mu.Lock() // reap must not see the child before j.watch has it
	defer j.mu.Unlock()
	for _, f := range files {
		inherit(f, true)
		defer inherit(f, false)
	}
	pid, _, err := syscall.StartProcess(j.self, args, attr)
	if err != nil {
		return 0, err
	}
	j.watch[pid] = changed
	j.reaping.Do(func() { go j.reap() })
	return pid, nil
}

// report sends Started or Failed. The file is closed when the job is executed, and if that fails,
// the error is written to it.
func (j *Job) report(r *os.File) {
	defer close(j.reported)
	defer r.Close()
	line, _ := bufio.NewReader(r).ReadString('\n')
	if n, err := strconv.Atoi(line); err == nil {
		j.events <- Event{Kind: Failed, Err: execError(syscall.Errno(n))}
		return
	}
	j.events <- Event{Kind: Started}
}

// reap waits for all children: the job, the guard and adopted orphans.
func (j *Job) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return // no child is left
		}
		j.mu.Lock()
		changed := j.watch[pid]
		if !status.Stopped() {
			delete(j.watch, pid)
		}
		j.mu.Unlock()
		if changed != nil {
			changed(status)
		}
	}
}

func (j *Job) jobChanged(status syscall.WaitStatus) {
	if status.Stopped() {
		j.events <- Event{Kind: Stopped, Signal: status.StopSignal()}
		return
	}
	<-j.reported // Started or Failed comes first
	e := Event{Kind: Ended, Code: status.ExitStatus()}
	if status.Signaled() {
		e.Code, e.Signal = 128+int(status.Signal()), status.Signal()
	}
	j.ended.Do(func() { j.events <- e })
}

// startParent starts a guard that starts the job and stays its parent. The guard is in the
// session of holdfast, so that the job is in that session too and can have the terminal.
func (j *Job) startParent(gate, report *os.File) error {
	attr := jobAttr()
	attr.Env = j.spec.Env
	g, lines, err := j.runGuard([2]string{fdText(gate), fdText(report)}, attr, gate, report)
	if err != nil {
		return err
	}
	g.parent = true
	g.to.SetWriteDeadline(time.Now().Add(readyTime))
	command := strings.Join(append([]string{j.spec.Path}, j.spec.Args...), "\x00")
	fmt.Fprintf(g.to, "start %d\n%s", len(command), command) // if this fails, there is no reply
	g.to.SetWriteDeadline(time.Time{})
	line, err := lines.ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "job %d\n", &j.group)
	}
	if err != nil {
		g.to.Close() // ends the guard
		lines.Close()
		return guardError(err)
	}
	j.mu.Lock()
	j.watch[j.group] = func(status syscall.WaitStatus) { // holdfast adopts the job when the guard ends
		<-g.heard // the guard may have sent overdue
		j.jobChanged(status)
	}
	j.mu.Unlock()
	return j.useGuard(g, lines)
}

// startGuard starts a guard for a job that was started already.
func (j *Job) startGuard() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	root := 0
	if j.alone {
		root = os.Getpid()
	}
	g, lines, err := j.runGuard([2]string{strconv.Itoa(j.group), strconv.Itoa(root)}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{null.Fd(), null.Fd(), 2},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	return j.useGuard(g, lines)
}

// guardLines are the messages from a guard.
type guardLines struct {
	*bufio.Reader
	*os.File
}

func (l guardLines) Close() error { return l.File.Close() }

// runGuard starts a guard process.
func (j *Job) runGuard(args [2]string, attr *syscall.ProcAttr, files ...*os.File) (*guard, guardLines, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, guardLines{}, err
	}
	defer in.Close()
	from, out, err := os.Pipe()
	if err != nil {
		to.Close()
		return nil, guardLines{}, err
	}
	defer out.Close()
	part, mute := hiddenGuard, "loud"
	if len(files) > 0 {
		part = hiddenParent
	}
	if j.spec.Mute {
		mute = "mute"
	}
	g := &guard{to: to, begun: time.Now(), heard: make(chan struct{}), gone: make(chan struct{})}
	g.pid, err = j.start([]string{"hf-guard", part, fdText(in), fdText(out), args[0], args[1], mute}, attr,
		func(status syscall.WaitStatus) {
			if status.Stopped() {
				// It must run, since only its parent learns of the end of the job.
				syscall.Kill(g.pid, syscall.SIGCONT)
				return
			}
			close(g.gone)
			go j.guardDied(g)
		}, append(files, in, out)...)
	if err != nil {
		to.Close()
		from.Close()
		return nil, guardLines{}, guardError(err)
	}
	from.SetReadDeadline(time.Now().Add(readyTime))
	return g, guardLines{bufio.NewReader(from), from}, nil
}

func guardError(err error) error { return fmt.Errorf("cannot start the guard of the job: %w", err) }

// useGuard tells the guard when to kill the job, and waits for its reply.
func (j *Job) useGuard(g *guard, lines guardLines) error {
	j.mu.Lock()
	j.guard = g
	g.tell(message(j.kill))
	j.mu.Unlock()
	if line, err := lines.ReadString('\n'); err != nil || line != ready {
		lines.Close()
		return guardError(fmt.Errorf("it replied %q: %w", line, err))
	}
	lines.SetReadDeadline(time.Time{})
	go j.listen(g, lines)
	return nil
}

// listen reads the messages from the guard, until the guard ends.
func (j *Job) listen(g *guard, lines guardLines) {
	defer lines.Close()
	defer close(g.heard)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if line == overdue {
			j.events <- Event{Kind: Overdue}
		}
		var status uint32
		if _, err := fmt.Sscanf(line, "status %d\n", &status); err == nil {
			j.jobChanged(syscall.WaitStatus(status))
		}
	}
}

// guardDied replaces a guard that was killed, unless guards die several times in a row.
func (j *Job) guardDied(g *guard) {
	const soon, limit = time.Second, 3
	j.mu.Lock()
	expected := j.guard != g
	if j.quick++; time.Since(g.begun) > soon {
		j.quick = 0
	}
	quick := j.quick
	g.parent = false // holdfast is the parent now
	j.mu.Unlock()
	if expected {
		return
	}
	g.to.Close()
	if quick > limit || j.startGuard() != nil {
		j.events <- Event{Kind: Unguarded}
	}
}

// family returns all processes that the job started, as far as they can be found.
func (j *Job) family() *family {
	return &family{group: j.group, root: func() (root, guard int) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.guard != nil && j.guard.parent {
			return j.guard.pid, 0
		}
		if j.guard != nil {
			guard = j.guard.pid
		}
		if j.alone {
			root = os.Getpid()
		}
		return root, guard
	}}
}

func fdText(f *os.File) string { return strconv.Itoa(int(f.Fd())) }

// inherit sets whether child processes inherit the file.
func inherit(f *os.File, yes bool) {
	flags := unix.FD_CLOEXEC
	if yes {
		flags = 0
	}
	unix.FcntlInt(f.Fd(), unix.F_SETFD, flags)
}
