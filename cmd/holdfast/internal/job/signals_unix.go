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

// forwarded are the signals that are passed on: all that can be caught, except those that
// the kernel or the runtime sends for reasons of their own (CHLD, PIPE, URG, PROF, XFSZ),
// those that mean a fault of this process, and TTIN and TTOU, which are about its own
// terminal.
var forwarded = append([]syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGALRM,
	syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	syscall.SIGIO, syscall.SIGXCPU, syscall.SIGVTALRM,
}, systemSignals()...)

// Notify has the signals that are to be passed on sent to the channel. HUP and INT that were
// ignored when we were started stay ignored, for us and for the job: that is how nohup
// works. Of the others the runtime does not tell.
func Notify(to chan<- os.Signal) {
	for _, sig := range forwarded {
		if !signal.Ignored(sig) {
			signal.Notify(to, sig)
		}
	}
}

// SurviveWrites makes a write that nobody reads, or that a file is too large for, an error
// and not our end.
func SurviveWrites() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGXFSZ)
}

// NotifyStop adds Ctrl-Z. By default it stops us, as it stops any program.
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

// Stops reports whether a signal is that of Ctrl-Z.
func Stops(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// ParseSignal reads TERM, SIGTERM or a number.
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

// SignalName returns a signal as people know it, such as "SIGTERM".
func SignalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return sig.String()
}

// SignalWords are the signals to offer for completion.
var SignalWords = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ABRT", "KILL"}

// DieOf ends us the way Ctrl-C ends any program, with all of our group, so that a shell
// script that called us ends as well. It returns if that does not work.
func DieOf(sig syscall.Signal) {
	signal.Reset(sig)
	syscall.Kill(0, sig)
	time.Sleep(signalTime) // it may be another thread that gets it
}

// signalTime is more than a signal to ourselves takes.
const signalTime = time.Second

// StopSelf stops us and our group as Ctrl-Z does, a pipeline as a whole, and returns when
// we are continued. Where nobody could do that it returns at once: so does the system in
// such a case. The channel is the one that NotifyStop got.
func StopSelf(signals chan<- os.Signal) {
	if orphaned() {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	signal.Ignore(syscall.SIGTSTP) // Go does not give it back its default, which is to stop
	defer NotifyStop(signals)
	syscall.Kill(0, syscall.SIGTSTP)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	select {
	case <-continued:
	case <-time.After(signalTime):
	}
}

// orphaned reports whether our process group has no shell any more that could continue it:
// nobody in the same session and another group is a parent of ours.
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
