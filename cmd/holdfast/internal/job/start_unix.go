//go:build unix

package job

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Job is a command that runs, or is about to.
type Job struct {
	spec     Spec
	self     string // our executable
	family   family
	events   chan Event
	reported chan struct{} // closed when Started or Failed was sent
	gate     *os.File      // a byte lets the job begin
	signals  chan<- os.Signal
	terminal *terminal

	mu    sync.Mutex
	watch map[int]func(syscall.WaitStatus) // who waits for which process
	kill  time.Time
	guard *guard
	quick int // guards in a row that died soon
}

// A guard is our side of the guard process.
type guard struct {
	pid   int
	to    *os.File
	begun time.Time
	gone  chan struct{}
}

// tell sends a message. A guard that is stopped must not stop us.
func (g *guard) tell(message string) {
	g.to.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	g.to.WriteString(message)
}

// readyTime is how long a guard may take to begin.
const readyTime = 10 * time.Second

// Start prepares the job, up to the point where only Release is missing. The channel is the
// one that Notify got: Ctrl-Z is caught from now on.
func Start(spec Spec, signals chan<- os.Signal) (*Job, error) {
	self, err := executablePath()
	if err != nil {
		return nil, err
	}
	j := &Job{
		spec: spec, self: self, kill: spec.Kill,
		events: make(chan Event, 64), reported: make(chan struct{}), watch: make(map[int]func(syscall.WaitStatus)),
		terminal: openTerminal(), signals: signals,
	}
	j.family.not = j.guardPid
	if !hasChildren() {
		j.family.root = os.Getpid()
	}
	adoptOrphans()
	if err := j.startJob(); err != nil {
		return nil, fmt.Errorf("cannot start a process: %w", err)
	}
	go j.reap()
	if !spec.Kill.IsZero() {
		if err := j.startGuard(); err != nil {
			j.Abandon()
			return nil, fmt.Errorf("cannot start the guard of the job: %w", err)
		}
	}
	j.terminal.job = j.family.group
	if !signal.Ignored(syscall.SIGTSTP) {
		NotifyStop(signals)
	}
	return j, nil
}

// hasChildren is true if this process had children before it became this program, by exec
// in a shell: they are not the job's.
func hasChildren() bool {
	_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	return !errors.Is(err, syscall.ECHILD)
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
	j.gate = gateOut
	inner := []string{"holdfast-exec", hiddenExec, fdText(gateIn), fdText(reportOut), j.spec.Path}
	attr := &syscall.ProcAttr{
		Env:   j.spec.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	pid, err := j.start(append(inner, j.spec.Args...), attr, j.jobChanged, gateIn, reportOut)
	if err != nil {
		gateOut.Close()
		reportIn.Close()
		return err
	}
	j.family.group = pid
	go j.report(reportIn)
	return nil
}

// start starts a process that inherits the files under their own numbers, which are free in
// the child because they are taken here. Whatever else was inherited by us stays where it
// is: a job may expect it.
func (j *Job) start(args []string, attr *syscall.ProcAttr, changed func(syscall.WaitStatus), files ...*os.File) (int, error) {
	j.mu.Lock() // until it is known whom its end concerns
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
	return pid, nil
}

// report tells whether the job was executed: the file is closed by that, or has an error.
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
	<-j.reported // the first news first
	switch {
	case status.Signaled():
		j.events <- Event{Kind: Ended, Code: 128 + int(status.Signal()), Signal: status.Signal()}
	case status.Exited():
		j.events <- Event{Kind: Ended, Code: status.ExitStatus()}
	}
}

// startGuard starts the guard and waits until it is on guard.
func (j *Job) startGuard() error {
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
	defer from.Close()
	defer out.Close()
	mute := "loud"
	if j.spec.Mute {
		mute = "mute"
	}
	g := &guard{to: to, begun: time.Now(), gone: make(chan struct{})}
	g.pid, err = j.start(
		[]string{"hf-guard", hiddenGuard, fdText(in), fdText(out), strconv.Itoa(j.family.group), strconv.Itoa(j.family.root), mute},
		&syscall.ProcAttr{
			Dir:   "/", // it must not keep a file system busy
			Env:   append(os.Environ(), "GOMAXPROCS=1"),
			Files: []uintptr{null.Fd(), null.Fd(), 2},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		},
		func(syscall.WaitStatus) { close(g.gone); go j.guardDied(g) }, in, out)
	if err != nil {
		to.Close()
		return err
	}
	out.Close() // else its end would not be seen
	j.mu.Lock()
	j.guard = g
	g.tell(message(j.kill))
	j.mu.Unlock()
	from.SetReadDeadline(time.Now().Add(readyTime))
	if _, err := from.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("it did not answer: %w", err)
	}
	return nil
}

// guardDied replaces a guard that was killed, unless that happens again and again.
func (j *Job) guardDied(g *guard) {
	const soon, most = time.Second, 3
	j.mu.Lock()
	expected := j.guard != g
	if j.quick++; time.Since(g.begun) > soon {
		j.quick = 0
	}
	quick := j.quick
	j.mu.Unlock()
	if expected {
		return
	}
	g.to.Close()
	if quick > most || j.startGuard() != nil {
		j.events <- Event{Kind: Unguarded}
	}
}

func (j *Job) guardPid() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.guard == nil {
		return 0
	}
	return j.guard.pid
}

func fdText(f *os.File) string { return strconv.Itoa(int(f.Fd())) }

// inherit says whether processes that are started get the file.
func inherit(f *os.File, yes bool) {
	flags := unix.FD_CLOEXEC
	if yes {
		flags = 0
	}
	unix.FcntlInt(f.Fd(), unix.F_SETFD, flags)
}
