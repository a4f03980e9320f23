package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A Job is a command that runs, or is about to.
type Job struct {
	spec   Spec
	object windows.Handle
	cmd    *exec.Cmd
	events chan Event
}

// Inner does nothing here: there are no inner parts.
func Inner([]string) {}

// Lookup finds the executable of a command. The error matches ErrNotFound or
// ErrNotExecutable.
func Lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("%w: %w", ErrNotExecutable, err)
	}
	return "", fmt.Errorf("%w: %w", ErrNotFound, err)
}

// Start prepares the job. The job object ends everything in it when its last handle is
// closed, which the system does for us when we end, however that happens.
func Start(spec Spec, _ chan<- os.Signal) (*Job, error) {
	object, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a job object: %w", err)
	}
	if !spec.Kill.IsZero() {
		info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
			BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
				LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
			},
		}
		_, err = windows.SetInformationJobObject(object, windows.JobObjectExtendedLimitInformation,
			uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
		if err != nil {
			windows.CloseHandle(object)
			return nil, fmt.Errorf("cannot set up the job object: %w", err)
		}
	}
	cmd := &exec.Cmd{Path: spec.Path, Args: spec.Args, Env: spec.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return &Job{spec: spec, object: object, cmd: cmd, events: make(chan Event, 8)}, nil
}

// Events tells what happens to the job.
func (j *Job) Events() <-chan Event { return j.events }

// Release lets the job begin. Started or Failed follows.
func (j *Job) Release() {
	err := j.cmd.Start()
	if err == nil {
		err = j.adopt()
	}
	if err != nil {
		if j.cmd.Process != nil {
			j.cmd.Process.Kill()
			j.cmd.Wait()
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", ErrNotFound, err)
		} else {
			err = fmt.Errorf("%w: %w", ErrNotExecutable, err)
		}
		j.events <- Event{Kind: Failed, Err: err}
		j.events <- Event{Kind: Ended, Code: 126}
		return
	}
	j.events <- Event{Kind: Started}
	go func() {
		j.cmd.Wait()
		j.events <- Event{Kind: Ended, Code: j.cmd.ProcessState.ExitCode()}
	}()
}

// adopt puts the process into the job object. What it started before that, in its first
// moments, is not in it.
func (j *Job) adopt() error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(j.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	return windows.AssignProcessToJobObject(j.object, h)
}

// Abandon ends a job that was not released: it never begins.
func (j *Job) Abandon() { j.Close(false) }

// Extend does nothing: there is no guard.
func (j *Job) Extend(time.Time) {}

// Forward does nothing: the console tells all its processes by itself.
func (j *Job) Forward(os.Signal) {}

// Terminate kills: the system has no gentler way that works for every program.
func (j *Job) Terminate(syscall.Signal) { windows.TerminateJobObject(j.object, 1) }

// Kill kills everything in the job object.
func (j *Job) Kill() error { return windows.TerminateJobObject(j.object, 1) }

// Alive is not known; the end of the first process counts.
func (j *Job) Alive() bool { return false }

// GroupAlive is not known.
func (j *Job) GroupAlive() bool { return false }

// Suspend is never needed: nothing stops a job.
func (j *Job) Suspend(syscall.Signal, func()) {}

// Close frees the job object. What the job left running goes on.
func (j *Job) Close(bool) bool {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	windows.SetInformationJobObject(j.object, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	windows.CloseHandle(j.object)
	return false
}

// Notify has Ctrl-C and the end of the session sent to the channel.
func Notify(to chan<- os.Signal) { signal.Notify(to, os.Interrupt, syscall.SIGTERM) }

// Ends reports whether a signal asks a program to end, and its number.
func Ends(sig os.Signal) (int, bool) {
	s, ok := sig.(syscall.Signal)
	return int(s), ok
}

// ParseSignal reads TERM or KILL, which are the same here.
func ParseSignal(s string) (syscall.Signal, bool) {
	switch strings.TrimPrefix(strings.ToUpper(s), "SIG") {
	case "TERM", "15":
		return syscall.SIGTERM, true
	case "KILL", "9":
		return syscall.SIGKILL, true
	}
	return 0, false
}

// SignalName returns a signal as people know it.
func SignalName(sig syscall.Signal) string { return sig.String() }

// SignalWords are the signals to offer for completion.
var SignalWords = []string{"TERM", "KILL"}

// DieOf does nothing here.
func DieOf(syscall.Signal) {}

// Foreground is of no meaning here.
func Foreground() bool { return false }

// SurviveWrites is not needed here.
func SurviveWrites() {}

// NotifyStop does nothing: there is no Ctrl-Z.
func NotifyStop(chan<- os.Signal) {}

// StopSelf does nothing: nobody could continue us.
func StopSelf(chan<- os.Signal) {}

// Stops is false for all signals.
func Stops(os.Signal) bool { return false }
