//go:build unix

package job

import (
	"errors"
	"fmt"
	"io"
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
	Events   chan Event // to receive from
	spec     Spec
	self     string        // the executable of holdfast
	group    int           // the process group of the job, which is also the ID of its first process
	root     int           // the process ID of holdfast, if all its children belong to the job; otherwise 0
	reported chan struct{} // closed after Started or Failed was sent
	gate     *os.File      // a byte lets the job begin
	signals  chan<- os.Signal
	terminal *terminal

	mu    sync.Mutex
	watch map[int]func(syscall.WaitStatus) // called when the state of the child with this process ID changes
	guard *guard
}

// A guard is the end of holdfast in its conversation with a guard process.
type guard struct {
	pid      int
	to, from *os.File
	gone     chan struct{} // closed when it has ended
}

// tell sends a message. It does not wait: a guard that has been stopped for long may have a full pipe.
// A deadline would lose messages on a busy machine, if it were over before the write began.
func (g *guard) tell(message string) {
	if pipe, err := g.to.SyscallConn(); err == nil {
		pipe.Control(func(fd uintptr) { syscall.Write(int(fd), []byte(message)) })
	}
}

// readyTime limits how long a guard may take to start.
const readyTime = 10 * time.Second

// Start starts the process of the job and its guard; Release then lets the job begin. Signals is
// the channel that was passed to Notify. It receives Ctrl-Z from now on.
func Start(spec Spec, signals chan<- os.Signal) (*Job, error) {
	self, err := executablePath()
	if err != nil {
		return nil, err
	}
	j := &Job{
		spec: spec, self: self, root: rootOfJob(),
		Events: make(chan Event, 64), reported: make(chan struct{}), watch: make(map[int]func(syscall.WaitStatus)),
		terminal: openTerminal(), signals: signals,
	}
	adoptOrphans()
	if err := j.startJob(); err != nil {
		return nil, err
	}
	if !spec.Kill.IsZero() {
		if err := j.startGuard(); err != nil {
			j.Abandon()
			return nil, err
		}
	}
	j.terminal.job = j.group
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(signals, syscall.SIGTSTP) // otherwise Ctrl-Z stops this process
	}
	return j, nil
}

// rootOfJob returns the ID of this process, or 0 if it has children already: a shell may have started
// them before it executed holdfast. They do not belong to the job.
func rootOfJob() int {
	if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); errors.Is(err, syscall.ECHILD) {
		return os.Getpid()
	}
	return 0
}

// startJob starts the process that becomes the job. See becomeJob.
func (j *Job) startJob() error {
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
	attr := &syscall.ProcAttr{Env: j.spec.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	args := append([]string{"holdfast-exec", hiddenExec, fdText(gateIn), fdText(reportOut), j.spec.Path}, j.spec.Args...)
	if j.group, err = j.start(args, attr, j.jobChanged, gateIn, reportOut); err != nil {
		gateOut.Close()
		reportIn.Close()
		return fmt.Errorf("cannot start %s: %w", j.self, err)
	}
	j.gate = gateOut
	go j.reap()
	go j.report(reportIn)
	return nil
}

// start starts a process that inherits the files under the same descriptor numbers. Holdfast uses
// these numbers itself, so they are free in the child. Files that holdfast inherited keep their
// numbers, since a job may expect them.
func (j *Job) start(args []string, attr *syscall.ProcAttr, changed func(syscall.WaitStatus), files ...*os.File) (int, error) {
	j.mu.Lock() // reap must not see the child before j.watch has it
	defer j.mu.Unlock()
	for _, f := range files {
		unix.FcntlInt(f.Fd(), unix.F_SETFD, 0)
		defer syscall.CloseOnExec(int(f.Fd()))
	}
	pid, _, err := syscall.StartProcess(j.self, args, attr)
	if err != nil {
		return 0, err
	}
	j.watch[pid] = changed
	return pid, nil
}

// report sends Started or Failed. The file is closed when the job is executed, and if that fails,
// the error is written to it.
func (j *Job) report(r *os.File) {
	defer close(j.reported)
	defer r.Close()
	text, _ := io.ReadAll(r)
	e := Event{Kind: Started}
	if n, err := strconv.Atoi(string(text)); err == nil {
		e = Event{Kind: Failed, Err: execError(syscall.Errno(n))}
	}
	j.Events <- e
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
		j.Events <- Event{Kind: Stopped, Signal: status.StopSignal()}
		return
	}
	<-j.reported // Started or Failed comes first
	e := Event{Kind: Ended, Code: status.ExitStatus()}
	if status.Signaled() {
		e.Code, e.Signal = 128+int(status.Signal()), status.Signal()
		j.mu.Lock()
		if j.guard != nil && j.guard.overdue() {
			j.Events <- Event{Kind: Overdue}
		}
		j.mu.Unlock()
	}
	j.Events <- e
}

// startGuard starts the guard, tells it when to kill the job, and waits until it is ready. The guard
// is in a session of its own, so it gets no signal of the terminal.
func (j *Job) startGuard() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot start the guard of the job: %w", err)
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	in, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	from, out, err := os.Pipe()
	if err != nil {
		to.Close()
		return err
	}
	defer out.Close()
	g := &guard{to: to, from: from, gone: make(chan struct{})}
	args := []string{"hf-guard", hiddenGuard, fdText(in), fdText(out)}
	args = append(args, strings.Fields(fmt.Sprint(j.group, j.root, int64(j.spec.Spare), j.spec.Mute))...)
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if g.pid, err = j.start(args, attr, func(status syscall.WaitStatus) { j.guardChanged(g, status) }, in, out); err != nil {
		g.close()
		return err
	}
	j.mu.Lock()
	j.guard = g
	j.mu.Unlock()
	j.Extend(j.spec.Kill)
	from.SetReadDeadline(time.Now().Add(readyTime))
	reply := make([]byte, len(ready))
	if _, err := io.ReadFull(from, reply); err != nil || string(reply) != ready {
		return fmt.Errorf("it replied %q: %w", reply, err)
	}
	from.SetReadDeadline(time.Time{})
	return nil
}

// overdue reports whether the guard has said that it kills the job. The guard says so before it kills,
// so the message is there when the job has ended.
func (g *guard) overdue() bool {
	message, n := make([]byte, len(overdue)), 0
	if pipe, err := g.from.SyscallConn(); err == nil {
		pipe.Read(func(fd uintptr) bool { // not while startGuard reads
			n, _ = syscall.Read(int(fd), message)
			return true // does not wait
		})
	}
	return n > 0 && string(message[:n]) == overdue
}

func (g *guard) close() {
	g.to.Close()
	g.from.Close()
}

// guardChanged handles the end of the guard, and continues a guard that was stopped.
func (j *Job) guardChanged(g *guard, status syscall.WaitStatus) {
	if status.Stopped() {
		syscall.Kill(g.pid, syscall.SIGCONT)
		return
	}
	close(g.gone)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.guard == g && status.ExitStatus() != 0 { // -1 after a signal
		j.guard = nil
		g.close()
		j.Events <- Event{Kind: Unguarded}
	}
}

// family returns all processes that the job started, as far as they can be found.
func (j *Job) family() *family {
	return &family{group: j.group, root: func() (root, guard int) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.guard != nil {
			guard = j.guard.pid
		}
		return j.root, guard
	}}
}

func fdText(f *os.File) string { return strconv.Itoa(int(f.Fd())) }
