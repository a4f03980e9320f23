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

// forwarded are the signals that are forwarded to the job: all signals that can be caught, except
// those that concern only this process. The kernel or the Go runtime sends CHLD, PIPE, URG, PROF,
// XFSZ and signals such as SEGV. TTIN and TTOU concern access to the terminal.
var forwarded = append([]syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGALRM,
	syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	syscall.SIGIO, syscall.SIGXCPU, syscall.SIGVTALRM,
}, systemSignals()...)

// Notify relays the signals that the job gets to the channel. If HUP or INT was ignored when
// holdfast was started, it stays ignored for holdfast and for the job, as nohup expects. For
// other signals the Go runtime does not report that they were ignored.
func Notify(to chan<- os.Signal) {
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
	}
}

// SurviveWrites makes a write to a closed pipe, or beyond the maximum size of a file, an error
// instead of the end of this process.
func SurviveWrites() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGXFSZ)
}

// NotifyStop relays Ctrl-Z to the channel. Without it, Ctrl-Z stops this process.
func NotifyStop(to chan<- os.Signal) { signal.Notify(to, syscall.SIGTSTP) }

// Ends reports whether a signal asks a program to end, and its number.
func Ends(sig os.Signal) (int, bool) {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return 0, false
	}
	switch s {
	case syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP:
		return int(s), false
	}
	return int(s), true
}

// Stops reports whether a signal is the one that Ctrl-Z sends.
func Stops(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// ParseSignal parses TERM, SIGTERM or a number.
func ParseSignal(s string) (syscall.Signal, bool) {
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, true
	}
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' || n > 64 {
			return 0, false
		}
		n = 10*n + int(r-'0')
	}
	sig := syscall.Signal(n)
	return sig, unix.SignalName(sig) != "" || slices.Contains(forwarded, sig)
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

// StopSelf stops this process and its group, such as a pipeline, as Ctrl-Z does, and returns when
// they are continued. If no shell could continue them it returns at once: the system ignores
// Ctrl-Z in that case too. Signals is the channel that was passed to NotifyStop.
func StopSelf(signals chan<- os.Signal) {
	if orphaned() {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	signal.Ignore(syscall.SIGTSTP) // Go cannot restore its default action, which is to stop
	defer NotifyStop(signals)
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
	for pid := os.Getppid(); pid > 0; pid = parentOf(pid) {
		if sid, err := unix.Getsid(pid); err != nil || sid != session {
			return true
		}
		if group, err := unix.Getpgid(pid); err == nil && group != unix.Getpgrp() {
			return false
		}
	}
	return true
}
