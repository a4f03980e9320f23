//go:build unix

package job

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
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

// done tells the guard that there is nothing to guard any more.
const done = "done\n"

// beGuard kills a process group at the time that the parent's last message gave, or at once
// when the parent is gone without a word. It is in a session of its own, so that no
// terminal reaches it, and ends only with its parent.
func beGuard(args []string) {
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
	in, out, group, root := os.NewFile(uintptr(n[0]), "in"), os.NewFile(uintptr(n[1]), "out"), n[2], n[3]
	mute := args[4] == "mute"
	syscall.CloseOnExec(n[0])
	syscall.CloseOnExec(n[1])
	rename("hf-guard")
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)

	lines := make(chan string, 16)
	go func() {
		defer close(lines)
		for r := bufio.NewReader(in); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			lines <- line
		}
	}()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	var kill time.Duration
	ready := false
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				// It may be dying still, with its files closed and its children given away.
				end(group, 0, mute, "holdfast was killed")
			}
			if line == done {
				os.Exit(0)
			}
			at, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(line, "kill at "), "\n"), 10, 64)
			if err != nil {
				continue
			}
			kill = time.Duration(at)
			timer.Reset(kill - now())
			if !ready {
				ready = true
				out.Write([]byte("ready\n"))
			}
		case <-timer.C:
			if len(lines) > 0 {
				timer.Reset(0) // what was sent before counts
				continue
			}
			if left := kill - now(); left > 0 {
				timer.Reset(left)
				continue
			}
			end(group, root, mute, "holdfast was stopped or hangs")
		}
	}
}

// end kills and is the guard's own end.
func end(group, root int, mute bool, why string) {
	f := family{group: group, not: os.Getpid}
	if root != 0 && os.Getppid() == root { // holdfast is stopped: all that the job started is below it
		f.root = root
	}
	found := f.alive()
	err := f.kill(time.Now().Add(killTime))
	if found && !mute {
		what := "the job was killed before its lock could be another's"
		if err != nil {
			what = err.Error()
		}
		fmt.Fprintf(os.Stderr, "holdfast: %s: %s\n", why, what)
	}
	os.Exit(0)
}
