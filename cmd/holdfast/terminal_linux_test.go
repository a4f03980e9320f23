package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// A screen is a terminal, with the test as its user.
type screen struct {
	*process
	keyboard *os.File // the other end of the terminal
	seen     suites.Text
}

// terminal starts a command as the leader of a session with a terminal of its own.
func (s *site) terminal(args ...string) *screen {
	s.t.Helper()
	return s.terminalOf(unix.Winsize{Row: 24, Col: 100}, args...)
}

func (s *site) terminalOf(size unix.Winsize, args ...string) *screen {
	s.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		s.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &size); err != nil {
		s.t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer slave.Close()
	x := &screen{process: s.program(args[0], args[1:]...), keyboard: master}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			seen := x.seen.String()
			s.t.Logf("on the terminal: %q", seen[max(0, len(seen)-2000):])
		}
	})
	x.start()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			x.seen.Write(buf[:n])
			if err != nil {
				return // all processes have closed the terminal
			}
		}
	}()
	s.t.Cleanup(func() { master.Close() })
	return x
}

// shell starts an interactive shell with job control.
func (s *site) shell() *screen {
	s.t.Helper()
	x := s.terminal("bash", "--norc", "--noprofile", "--noediting", "-i")
	x.types("PS1=; bind 'set enable-bracketed-paste off' 2>/dev/null; echo shell-$((1+1))\n")
	x.shows("shell-2")
	return x
}

func (x *screen) types(keys string) {
	x.t.Helper()
	if _, err := x.keyboard.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// shows waits until a text is on the screen.
func (x *screen) shows(text string) {
	x.t.Helper()
	until(x.t, "on the screen: "+text, func() bool { return strings.Contains(x.seen.String(), text) })
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestTheJobHasTheTerminal(t *testing.T) {
	s := newSite(t)
	x := s.terminal(command, "run", "a", "-c", `test -t 0 && test -t 1 && test -t 2 && read line && echo "read $line from $(tty)"`)
	x.types("hello\n")
	x.shows("read hello from /dev/pts/")
	x.wantCode(0)
	// The job has the terminal from the start, since it may check whether it is in the
	// foreground.
	x = s.terminal(command, "run", "a", "-c", `echo "group $(($(ps -o pgid= -p $$) - $(ps -o tpgid= -p $$)))"`)
	x.shows("group 0")
	x.wantCode(0)
}

// A serial console does not know its size.
func TestControlCharactersAreEscapedOnATerminalOfUnknownSize(t *testing.T) {
	s := newSite(t)
	req := suites.Request("a")
	req.Owner, req.Meta = "\x1b]0;owned\x07\u009b31m", "\r\u202ex"
	suites.Granted(t, s.open(), req)
	x := s.terminalOf(unix.Winsize{}, command, "run", "a", "--", "true")
	x.shows("31m")
	if seen := x.seen.String(); strings.Contains(seen, "\x1b]") || strings.ContainsAny(seen, "\x07\u009b\u202e") || !strings.Contains(seen, `\u001b]0;owned\u0007`) {
		t.Errorf("on the terminal: %q", seen)
	}
	x.types(ctrlC)
	x.wantCode(-int(syscall.SIGINT))
}

// The jobs in these tests are single processes, because dash ignores a Ctrl-C or Ctrl-Z that
// arrives while it forks.

func TestCtrlCWhileWaitingLeavesTheQueue(t *testing.T) {
	s := newSite(t)
	holder := s.hold("a")
	x := s.terminal(command, "run", "a", "--", "true")
	x.shows(`waiting: "a" is held by ` + hostname(t))
	x.shows("place 1 of 1 in the queue")
	x.types(ctrlC)
	x.wantCode(-int(syscall.SIGINT))
	s.waiting("a", 0)
	s.write("go", "")
	holder.wantCode(0)
}

// The second run shows that the first one has released the lock.
func TestCtrlCEndsTheJobTheCallingScriptAndLoop(t *testing.T) {
	s := newSite(t)
	s.write("script", "#!/bin/bash\nholdfast run a -c 'echo in-$((0+1)); exec sleep 60'\ntouch after\n")
	x := s.shell()
	x.types("./script\n")
	x.shows("in-1")
	x.types(ctrlC)
	x.types("echo code-$?\n")
	x.shows("code-130")
	x.types("for i in 1 2 3; do echo $i >>turns; holdfast run -n a -c 'echo in-$((1+1)); exec sleep 60'; done\n")
	x.shows("in-2")
	x.types(ctrlC)
	x.types("echo still-$((0+3))\n")
	x.shows("still-3")
	if _, err := s.stat("after"); err == nil {
		t.Error("the script continued")
	}
	if turns := s.read("turns"); turns != "1\n" {
		t.Errorf("the loop continued: %q", turns)
	}
}

func TestCtrlZFgAndBgWork(t *testing.T) {
	s := newSite(t)
	if err := unix.Mkfifo(s.path("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	x := s.shell()
	x.types("holdfast run a -c 'echo ready-$((0+1)); read line; echo got-$line; read end <fifo; echo end-$((0+4))'\n")
	x.shows("ready-1")
	x.types(ctrlZ)
	x.shows("is not renewed while")
	x.shows("Stopped")
	x.types("jobs; echo prompt-$((0+2))\n")
	x.shows("prompt-2")
	x.types("fg\n")
	x.types("typed\n")
	x.shows("got-typed")
	x.types(ctrlZ)
	until(t, "stopped again", func() bool { return strings.Count(x.seen.String(), "Stopped") >= 3 })
	x.types("bg; echo prompt-$((0+3))\n")
	x.shows("prompt-3")
	s.write("fifo", "\n")
	x.shows("end-4")
	x.types("wait; echo code-$?; exit 7\n")
	x.shows("code-0")
	x.wantCode(7)
}

// No shell could continue the group, so the system ignores Ctrl-Z.
func TestCtrlZWithoutAShellStopsNothing(t *testing.T) {
	s := newSite(t)
	x := s.terminal(command, "run", "a", "-c", `echo ready; read line; echo "got $line"`)
	x.shows("ready")
	x.types(ctrlZ)
	x.types("hello\n")
	x.shows("got hello")
	x.wantCode(0)
}

// A stopped holdfast does not renew its lock.
func TestAJobThatIsStoppedTooLongIsKilled(t *testing.T) {
	s := newSite(t)
	x := s.shell()
	x.types("holdfast run --ttl 8s a -c 'echo $$ >pid; echo ready-$((0+1)); exec sleep 60'\n")
	x.shows("ready-1")
	pid := s.pid("pid")
	x.types(ctrlZ)
	x.shows("Stopped")
	until(t, "the job is dead", func() bool { return dead(pid) })
	s.run("run", "a", "--", "true").wantCode(0)
	x.types("fg; echo code-$?\n")
	x.shows("code-79")
}

// A pager must be able to read keys while the job runs.
func TestInAPipelineTheOtherProgramsKeepTheTerminal(t *testing.T) {
	s := newSite(t)
	x := s.shell()
	x.types("holdfast run a -c 'echo hi; while [ ! -e go ]; do sleep 0.01; done' | sh -c 'read key </dev/tty; echo key-$key; cat'\n")
	s.exists("locks.db")
	s.held("a")
	x.types("k\n")
	x.shows("key-k")
	s.write("go", "")
	x.types("echo end-$((0+1))\n")
	x.shows("end-1")
	// The job gets the terminal when it reads from it.
	x.types("holdfast run a -c 'read word </dev/tty; echo word-$word' | cat\n")
	s.held("a")
	x.types("w\n")
	x.shows("word-w")
}

func TestTheTerminalIsRestoredAfterAKilledJob(t *testing.T) {
	s := newSite(t)
	x := s.shell()
	x.types("holdfast run a -c 'stty -echo -icanon; echo $$ >pid; echo raw-$((0+1)); exec sleep 60'; stty -a | grep -o ' -*icanon'; echo end-$((0+1))\n")
	x.shows("raw-1")
	kill(s.pid("pid"))
	x.shows("end-1")
	if out := x.seen.String(); !strings.Contains(out, " icanon") || strings.Contains(out[strings.LastIndex(out, "raw-1"):], "-icanon") {
		t.Errorf("modes were not restored")
	}
}

func TestWatchFillsTheScreen(t *testing.T) {
	s := newSite(t)
	for i := range 30 {
		suites.Granted(t, s.open(), suites.Request(fmt.Sprintf("n%02d", i)))
	}
	x := s.terminal(command, "watch", "--interval", "0.1")
	x.shows("30 held, 0 done, 0 waiting")
	x.shows("n20 ")
	if strings.Contains(x.seen.String(), "n22 ") {
		t.Error("more lines than fit")
	}
	x.types(ctrlC)
	x.wantCode(0)
}
