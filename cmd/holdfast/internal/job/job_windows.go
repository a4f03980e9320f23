package job

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A Job is a command that runs, or that is about to run.
type Job struct {
	Events chan Event // to receive from
	object windows.Handle
	cmd    *exec.Cmd
}

// Start prepares the job. The system ends all processes in the job object when its last handle
// is closed, which happens when holdfast ends for any reason.
func Start(spec Spec, _ chan<- os.Signal) (*Job, error) {
	object, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot create a job object: %w", err)
	}
	if !spec.Kill.IsZero() {
		if err := setLimits(object, windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE); err != nil {
			windows.CloseHandle(object)
			return nil, fmt.Errorf("cannot set up the job object: %w", err)
		}
	}
	cmd := &exec.Cmd{Path: spec.Path, Args: spec.Args, Env: spec.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return &Job{object: object, cmd: cmd, Events: make(chan Event, 8)}, nil
}

// setLimits replaces the limits of a job object.
func setLimits(object windows.Handle, flags uint32) error {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = flags
	_, err := windows.SetInformationJobObject(object, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	return err
}

// Release lets the job begin. The event Started or Failed follows.
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
		j.Events <- Event{Kind: Failed, Err: execError(err)}
		j.Events <- Event{Kind: Ended, Code: 126}
		return
	}
	j.Events <- Event{Kind: Started}
	go func() {
		j.cmd.Wait()
		j.Events <- Event{Kind: Ended, Code: j.cmd.ProcessState.ExitCode()}
	}()
}

// adopt adds the process to the job object, but not processes that it started earlier.
func (j *Job) adopt() error {
	const rights = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE | windows.SYNCHRONIZE
	h, err := windows.OpenProcess(rights, false, uint32(j.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	err = windows.AssignProcessToJobObject(j.object, h)
	if state, _ := windows.WaitForSingleObject(h, 0); state == windows.WAIT_OBJECT_0 {
		return nil // it has ended, so it was not accepted
	}
	return err
}

// Abandon ends a job that was not released, and so never begins.
func (j *Job) Abandon() { j.Close(false) }

// Terminate kills the job, because no gentler way works for every program.
func (j *Job) Terminate(syscall.Signal) { windows.TerminateJobObject(j.object, 1) }

// Kill kills everything in the job object.
func (j *Job) Kill() error { return windows.TerminateJobObject(j.object, 1) }

// Close frees the job object. Processes that the job left in the background continue.
func (j *Job) Close(bool) bool {
	setLimits(j.object, 0)
	windows.CloseHandle(j.object)
	return false
}

// Notify relays Ctrl-C and the end of the session to the channel.
func Notify(to chan<- os.Signal) { signal.Notify(to, os.Interrupt, syscall.SIGTERM) }

// Ends reports whether a signal asks a program to end, and its number.
func Ends(sig os.Signal) (int, bool) {
	s, ok := sig.(syscall.Signal)
	return int(s), ok
}

// ParseSignal parses TERM or KILL, which have the same effect.
func ParseSignal(s string) (syscall.Signal, bool) {
	switch strings.TrimPrefix(strings.ToUpper(s), "SIG") {
	case "TERM", "15":
		return syscall.SIGTERM, true
	case "KILL", "9":
		return syscall.SIGKILL, true
	}
	return 0, false
}

// SignalName returns the name of a signal.
func SignalName(sig syscall.Signal) string { return sig.String() }

// SignalWords are the signals that completion offers.
var SignalWords = []string{"TERM", "KILL"}

// What Windows does not have.

func Inner([]string)                          {} // there are no processes of these kinds
func DieOf(syscall.Signal)                    {}
func SurviveWrites()                          {} // a failed write is an error anyway
func Foreground() bool                        { return false }
func (j *Job) Extend(time.Time)               {}               // there is no guard
func (j *Job) Forward(os.Signal)              {}               // the console notifies all its processes itself
func (j *Job) Suspend(syscall.Signal, func()) {}               // a job cannot be stopped
func (j *Job) Alive() bool                    { return false } // the state of the other processes is unknown
