//go:build unix

package job

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
)

// A terminal is the one that controls us. Only one process group can read from it and gets
// Ctrl-C: the one in the foreground.
type terminal struct {
	fd    int // -1 if there is none
	own   int // our process group
	job   int // the job's
	given bool
	modes *unix.Termios
}

func openTerminal() *terminal {
	t := &terminal{fd: -1, own: unix.Getpgrp()}
	if fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0); err == nil {
		t.fd = fd
	}
	return t
}

// foreground reports whether our group has the terminal.
func (t *terminal) foreground() bool {
	if t.fd < 0 {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// Foreground reports whether we have a terminal and are in its foreground.
func Foreground() bool {
	t := openTerminal()
	defer t.close()
	return t.foreground()
}

// start gives the terminal to the job if we have it. Not in a pipeline: the programs beside
// us (a pager) are in our group and would be cut off. There the job gets it on demand.
func (t *terminal) start() {
	if !t.foreground() {
		return
	}
	if t.modes == nil {
		t.modes, _ = unix.IoctlGetTermios(t.fd, tty.GetTermios)
	}
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if info, err := f.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
			return
		}
	}
	t.give()
}

// give puts the job into the foreground.
func (t *terminal) give() {
	if t.fd >= 0 && unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.job) == nil {
		t.given = true
	}
}

// take puts us back into the foreground. We are in the background then, where that stops
// whoever does not ignore TTOU.
func (t *terminal) take() {
	if !t.given {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
	t.given = false
}

// restore undoes what a killed job did to the terminal's modes.
func (t *terminal) restore() {
	if t.modes != nil && t.foreground() {
		unix.IoctlSetTermios(t.fd, tty.SetTermios, t.modes)
	}
}

func (t *terminal) close() {
	if t.fd >= 0 {
		unix.Close(t.fd)
		t.fd = -1
	}
}
