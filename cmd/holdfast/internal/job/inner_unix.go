//go:build unix

package job

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// First arguments with which holdfast starts itself: see Inner.
const (
	hiddenExec  = "__exec"
	hiddenGuard = "__guard"
)

// Inner runs the guard, or becomes the job, if the arguments say so. It does not return then.
func Inner(args []string) {
	if len(args) < 2 {
		return
	}
	switch args[1] {
	case hiddenExec:
		becomeJob(args[2:])
	case hiddenGuard:
		beGuard(args[2:])
	default:
		return
	}
	os.Exit(64) // not called by holdfast
}

// becomeJob waits until Release is called, and then executes the job in its place. While the
// process waits, holdfast can give the terminal to its group, and the guard learns its process
// ID. If holdfast ends before that, the job never begins.
func becomeJob(args []string) {
	if len(args) < 4 {
		return
	}
	var gate, report int
	if n, _ := fmt.Sscan(args[0]+" "+args[1], &gate, &report); n < 2 {
		return
	}
	syscall.CloseOnExec(gate)
	syscall.CloseOnExec(report)
	if !readByte(gate) {
		os.Exit(0)
	}
	err := syscall.Exec(args[2], args[3:], os.Environ())
	var errno syscall.Errno
	errors.As(err, &errno)
	syscall.Write(report, []byte(strconv.Itoa(int(errno))))
	os.Exit(126)
}

// readByte reads a byte, and reports whether there is one. It does so without the poller of the Go
// runtime, which would make the file non-blocking.
func readByte(fd int) bool {
	for {
		if n, err := syscall.Read(fd, make([]byte, 1)); err != syscall.EINTR {
			return n == 1
		}
	}
}

// killTime limits the attempts to kill a job.
const killTime = 10 * time.Second

// now returns the time on a clock that all processes of this machine share. Unlike a duration,
// a time on this clock stays correct while a message is in flight or its sender is stopped.
func now() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// message returns the message that tells the guard when to kill the job. It reads the clock
// first: if holdfast is stopped in between, the time is too early, but never too late.
func message(kill time.Time) string {
	at := now()
	return fmt.Sprintf(killAt, at+time.Until(kill))
}

const (
	ready   = "ready\n"      // from the guard: it knows when to kill the job
	overdue = "overdue\n"    // from the guard: it kills the job
	killAt  = "kill at %d\n" // to the guard: when to kill the job
	done    = "done\n"       // to the guard: the job has ended
)

// A guardProcess is the state of this process if it is a guard.
type guardProcess struct {
	in    *bufio.Reader // from holdfast
	fd    int           // of in
	out   *os.File      // to holdfast
	group int           // the process group of the job
	root  int           // the process ID of holdfast, if all its children belong to the job; otherwise 0
	mute  bool          // print no messages
	spare time.Duration // how long after kill another holder cannot have the lock yet
	kill  time.Duration // when to kill the job
}

// beGuard kills the job at the time in the last message from holdfast, or at once if holdfast
// ends without the message done. It ignores the signals that end most programs.
func beGuard(args []string) {
	g := &guardProcess{kill: math.MaxInt64}
	var out int
	if n, _ := fmt.Sscan(strings.Join(args, " "), &g.fd, &out, &g.group, &g.root, &g.spare, &g.mute); n < 6 {
		return
	}
	runtime.GOMAXPROCS(1)
	syscall.CloseOnExec(g.fd)
	syscall.CloseOnExec(out)
	rename("hf-guard")
	g.in, g.out = bufio.NewReader(os.NewFile(uintptr(g.fd), "in")), os.NewFile(uintptr(out), "out")
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	os.Chdir("/") // so that the file system can be unmounted
	g.guard()
}

// guard reads messages, and kills the job when it is time. It first reads all messages that
// have arrived: if the guard itself was stopped, there may be several, and the last one counts.
func (g *guardProcess) guard() {
	told := false
	for {
		left := g.kill - now()
		if !g.readable(left) {
			if left <= 0 {
				g.end("holdfast was stopped, or hangs")
			}
			continue
		}
		line, err := g.in.ReadString('\n')
		if err != nil {
			// Holdfast is dying: its process may still exist, but its children may already have
			// another parent.
			g.root = 0
			g.end("holdfast was killed")
		}
		if line == done {
			os.Exit(0)
		}
		if _, err := fmt.Sscanf(line, killAt, &g.kill); err != nil {
			continue
		}
		if !told {
			told = true
			g.out.WriteString(ready)
		}
	}
}

// readable waits until there is a message to read, up to a limit. Messages are written in one
// piece, so reading one does not block.
func (g *guardProcess) readable(wait time.Duration) bool {
	if g.in.Buffered() > 0 {
		return true
	}
	wait = min(max(wait, 0), time.Hour)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(g.fd), Events: unix.POLLIN}}, int((wait+time.Millisecond-1)/time.Millisecond))
	return err == nil && n > 0
}

func (g *guardProcess) end(why string) {
	f := family{group: g.group, root: func() (root, guard int) {
		if g.root != 0 && os.Getppid() == g.root { // holdfast is stopped, and the job is its descendant
			root = g.root
		}
		return root, os.Getpid()
	}}
	found := f.alive()
	if found {
		g.out.WriteString(overdue)
	}
	err := f.kill(time.Now().Add(killTime))
	if found && !g.mute {
		what := "the job was killed before another holder could acquire the lock"
		switch {
		case err != nil:
			what = err.Error()
		case now()-g.kill > g.spare: // the guard was stopped too
			what = "the job was killed late: another holder may have had the lock; check what both wrote, or use HOLDFAST_TOKEN"
		}
		fmt.Fprintf(os.Stderr, "holdfast: %s: %s\n", why, what)
	}
	os.Exit(0)
}
