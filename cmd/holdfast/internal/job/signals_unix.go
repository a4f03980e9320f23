//go:build unix

package job

import (
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// own are the signals that cannot be caught or that concern only this process. The kernel or the Go
// runtime sends CHLD, PIPE, URG, PROF, XFSZ and signals such as SEGV. TSTP, TTIN and TTOU concern the
// terminal. 32 to 34 belong to the C library of Linux.
var own = []syscall.Signal{
	syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGCHLD, syscall.SIGPIPE,
	syscall.SIGURG, syscall.SIGPROF, syscall.SIGXFSZ, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE,
	syscall.SIGSEGV, syscall.SIGSYS, 32, 33, 34,
}

// Notify relays all other signals, which the job gets, to the channel. If HUP or INT was ignored when
// holdfast was started, it stays ignored for holdfast and for the job, as nohup expects. For
// other signals the Go runtime does not report that they were ignored.
func Notify(to chan<- os.Signal) {
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if !slices.Contains(own, sig) && !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
	}
}

// SurviveWrites makes a write to a closed pipe, or beyond the maximum size of a file, an error
// instead of the end of this process.
func SurviveWrites() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGXFSZ)
}

// Ends reports whether a signal asks a program to end, and its number. SIGINFO, which BSD has for Ctrl-T, does not.
func Ends(sig os.Signal) (int, bool) {
	s, ok := sig.(syscall.Signal)
	return int(s), ok && s != syscall.SIGWINCH && s != syscall.SIGCONT && s != syscall.SIGTSTP && unix.SignalName(s) != "SIGINFO"
}

// ParseSignal parses TERM or SIGTERM.
func ParseSignal(s string) (syscall.Signal, bool) {
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	sig := unix.SignalNum(name)
	return sig, sig != 0
}

// SignalName returns the name of a signal, such as "SIGTERM".
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return sig.String()
}

// SignalWords are the signals that completion offers.
var SignalWords = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ABRT", "KILL"}

// DieOf ends this process and its group with a signal, as Ctrl-C ends any program. So a shell
// script that called holdfast ends too. If that does not work, DieOf returns.
func DieOf(sig syscall.Signal) {
	signal.Reset(sig)
	syscall.Kill(0, sig)
	time.Sleep(signalTime) // another thread may get the signal
}

// signalTime is longer than it takes to deliver a signal from this process to itself.
const signalTime = time.Second

// stopSelf stops this process and its group, such as a pipeline, as Ctrl-Z does, and returns when
// they are continued. If no shell could continue them it returns at once: the system ignores
// Ctrl-Z in that case too. Signals is the channel that gets Ctrl-Z.
func stopSelf(signals chan<- os.Signal) {
	if orphaned() {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	signal.Ignore(syscall.SIGTSTP) // Go cannot restore its default action, which is to stop
	defer signal.Notify(signals, syscall.SIGTSTP)
	syscall.Kill(0, syscall.SIGTSTP)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	select {
	case <-continued:
	case <-time.After(signalTime):
	}
}

// orphaned reports whether no shell is left that could continue this process group: no
// ancestor is in the same session and in another group.
func orphaned() bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return true
	}
	for pid := os.Getppid(); pid > 0; { // the parent is 0 if it is unknown
		if sid, err := unix.Getsid(pid); err != nil || sid != session {
			return true
		}
		if group, err := unix.Getpgid(pid); err == nil && group != unix.Getpgrp() {
			return false
		}
		p, _ := readProcess(pid)
		pid = p.parent
	}
	return true
}
