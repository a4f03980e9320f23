//go:build unix

package job

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/tty"
)

// A terminal is the controlling terminal. Only the process group in the foreground can read from
// it and gets Ctrl-C.
type terminal struct {
	fd    int // -1, with which every request fails, if there is none
	job   int // the process group of the job
	given bool
	modes *unix.Termios // before the job began
}

func openTerminal() *terminal {
	t := &terminal{fd: -1}
	if fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0); err == nil {
		t.fd = fd
	}
	return t
}

func (t *terminal) foreground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Foreground reports whether this process is in the foreground of a terminal.
func Foreground() bool {
	t := openTerminal()
	defer t.close()
	return t.foreground()
}

// start gives the terminal to the job if holdfast has it. In a pipeline it does not do so,
// because other programs in the group of holdfast, such as a pager, would lose the terminal. In
// that case the job gets the terminal when it needs it.
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

func (t *terminal) give() {
	if unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.job) == nil {
		t.given = true
	}
}

// take puts holdfast back into the foreground. It ignores TTOU, which would stop a process that
// does this from the background.
func (t *terminal) take() {
	if !t.given {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, unix.Getpgrp())
	t.given = false
}

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
