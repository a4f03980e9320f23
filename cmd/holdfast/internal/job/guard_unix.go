//go:build unix

package job

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killTime is how long killing is tried before it is given up.
const killTime = 10 * time.Second

// now is the time on a clock that all processes of this machine share. A point in time on
// it, unlike a duration, does not get later while a message is under way or its sender is
// stopped.
func now() time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return time.Duration(ts.Nano())
}

// message tells the guard when to kill. The clock is read first: if we are stopped in
// between, the result is too early and not too late.
func message(kill time.Time) string {
	at := now()
	return fmt.Sprintf("kill at %d\n", at+time.Until(kill))
}

const (
	ready   = "ready\n"   // the guard is on guard
	overdue = "overdue\n" // the guard kills the job
	done    = "done\n"    // there is nothing to guard any more
)

// A guardProcess is this process, if it is a guard.
type guardProcess struct {
	in     *bufio.Reader // from holdfast
	fd     int           // of in
	out    *os.File      // to holdfast
	group  int           // the job's
	root   int           // holdfast, if all its children are the job's
	parent bool          // of the job
	mute   bool
}

// beGuard kills the job at the time that the last message of holdfast gave, or at once when
// holdfast is gone without a word. No terminal reaches the guard: it is in a process group
// of its own, or in a session, and ignores what a terminal sends. It ends only with
// holdfast.
func beGuard(args []string, parent bool) {
	if len(args) != 5 {
		return
	}
	var n [4]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(args[i]); err != nil {
			return
		}
	}
	runtime.GOMAXPROCS(1)
	syscall.CloseOnExec(n[0])
	syscall.CloseOnExec(n[1])
	rename("hf-guard")
	g := &guardProcess{
		in: bufio.NewReader(os.NewFile(uintptr(n[0]), "in")), fd: n[0], out: os.NewFile(uintptr(n[1]), "out"),
		parent: parent, mute: args[4] == "mute",
	}
	if !parent {
		g.group, g.root = n[2], n[3]
	} else if err := g.startJob(n[2], n[3]); err != nil {
		fmt.Fprintf(g.out, "%v\n", err)
		os.Exit(1)
	}
	// After the job is started, which would inherit it.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	os.Chdir("/") // it must not keep a file system busy
	g.guard()
}

// guard is the work of the guard. It kills the job only if no message of holdfast is left to
// read: after a stop of the guard itself there may be many, and the newest time counts.
func (g *guardProcess) guard() {
	var kill time.Duration
	told := false
	for {
		left := time.Hour
		if told {
			left = kill - now()
		}
		if !g.readable(left) {
			if told && left <= 0 {
				g.end("holdfast was stopped or hangs")
			}
			continue
		}
		line, err := g.in.ReadString('\n')
		if err != nil {
			// It may be dying still, with its files closed and its children given away.
			g.root = 0
			g.end("holdfast was killed")
		}
		if line == done {
			os.Exit(0)
		}
		at, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(line, "kill at "), "\n"), 10, 64)
		if err != nil {
			continue
		}
		kill = time.Duration(at)
		if !told {
			told = true
			g.out.WriteString(ready)
		}
	}
}

// readable waits until there is something to read, at most for the time given. A message is
// written in one piece, so reading it does not block then.
func (g *guardProcess) readable(wait time.Duration) bool {
	if g.in.Buffered() > 0 {
		return true
	}
	wait = min(max(wait, 0), time.Hour)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(g.fd), Events: unix.POLLIN}}, int((wait+time.Millisecond-1)/time.Millisecond))
	return err == nil && n > 0
}

// end kills the job and ends the guard.
func (g *guardProcess) end(why string) {
	f := family{group: g.group, root: func() (root, guard int) {
		switch {
		case g.parent:
			return os.Getpid(), 0
		case g.root != 0 && os.Getppid() == g.root: // holdfast is stopped: the job is below it
			return g.root, os.Getpid()
		}
		return 0, os.Getpid()
	}}
	found := f.alive()
	if found {
		g.out.WriteString(overdue)
	}
	err := f.kill(time.Now().Add(killTime))
	if found && !g.mute {
		what := "the job was killed before its lock could be another's"
		if err != nil {
			what = err.Error()
		}
		fmt.Fprintf(os.Stderr, "holdfast: %s: %s\n", why, what)
	}
	os.Exit(0)
}
