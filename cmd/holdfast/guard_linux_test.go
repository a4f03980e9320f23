package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A bareGuard is a guard process whose other end is the test instead of holdfast.
type bareGuard struct {
	t    *testing.T
	cmd  *exec.Cmd
	to   *os.File
	from *bufio.Reader
	out  *os.File // the writing end of the pipe from, which the guard inherits
	err  text
}

// startGuard starts a guard. The guard inherits its two pipes as descriptors 3 and 4, and the
// files from 5 on.
func startGuard(t *testing.T, part, arg3, arg4 string, files ...*os.File) *bareGuard {
	t.Helper()
	in, to, err1 := os.Pipe()
	from, out, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	g := &bareGuard{t: t, to: to, from: bufio.NewReader(from), out: out}
	g.cmd = exec.Command(command, part, "3", "4", arg3, arg4, "loud")
	g.cmd.Stderr = &g.err
	g.cmd.ExtraFiles = append([]*os.File{in, out}, files...)
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	t.Cleanup(func() {
		g.cmd.Process.Kill()
		g.cmd.Wait()
		for _, f := range []*os.File{to, from, out} {
			f.Close()
		}
	})
	return g
}

// killIn tells the guard to kill the job after a time.
func (g *bareGuard) killIn(d time.Duration) {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	fmt.Fprintf(g.to, "kill at %d\n", ts.Nano()+int64(d))
}

func (g *bareGuard) hears(want string) {
	g.t.Helper()
	if line, err := g.from.ReadString('\n'); err != nil || line != want+"\n" {
		g.t.Fatalf("the guard sent %q, %v; want %q", line, err, want)
	}
}

// processState returns the state of a process as ps(1) shows it.
func processState(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) == 0 {
		return ""
	}
	return fields[0]
}

func TestAGuardThatWasStoppedReadsAllMessagesBeforeItActs(t *testing.T) {
	t.Parallel()
	for range 10 {
		job := exec.Command("sleep", "60")
		job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := job.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			job.Process.Kill()
			job.Wait()
		})
		g := startGuard(t, "__guard", strconv.Itoa(job.Process.Pid), "0")
		g.killIn(time.Minute)
		g.hears("ready")
		g.killIn(100 * time.Millisecond)
		pid := g.cmd.Process.Pid
		syscall.Kill(pid, syscall.SIGSTOP)
		until(t, "the guard is stopped", func() bool { return processState(pid) == "T" })
		time.Sleep(150 * time.Millisecond) // until the kill time of the last message has passed
		g.killIn(time.Minute)
		g.to.WriteString("done\n")
		syscall.Kill(pid, syscall.SIGCONT)
		if err := g.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if job.Process.Signal(syscall.Signal(0)) != nil || processState(job.Process.Pid) == "Z" {
			t.Fatal("the guard killed the job in spite of a later message")
		}
	}
}

// The kernel keeps only the last change of a child. Here the job is killed after the guard has
// seen that it is stopped, and before the guard has consumed that change.
func TestTheGuardReportsTheEndOfAJobThatIsKilledWhileStopped(t *testing.T) {
	t.Parallel()
	gateIn, gate, err1 := os.Pipe()
	report, reportOut, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	defer gate.Close()
	defer report.Close()
	g := startGuard(t, "__parent", "5", "6", gateIn, reportOut)
	gateIn.Close()
	reportOut.Close()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	commandLine := sleep + "\x00sleep\x0060"
	fmt.Fprintf(g.to, "start %d\n%s", len(commandLine), commandLine)
	line, err := g.from.ReadString('\n')
	var job int
	if _, scanErr := fmt.Sscanf(line, "job %d\n", &job); scanErr != nil {
		t.Fatalf("%q, %v", line, err)
	}
	t.Cleanup(func() { kill(job) })
	g.killIn(time.Minute)
	g.hears("ready")

	// A full pipe blocks the guard when it reports that the job is stopped.
	out := int(g.out.Fd())
	unix.SetNonblock(out, true)
	filler := 0
	for {
		n, err := unix.Write(out, []byte("\n"))
		if err != nil {
			break
		}
		filler += n
	}
	unix.SetNonblock(out, false)
	syscall.Kill(job, syscall.SIGSTOP)
	until(t, "the guard reports that the job is stopped", func() bool { return writesTo(g.cmd.Process.Pid, 4) })
	syscall.Kill(job, syscall.SIGKILL)
	until(t, "the job is dead", func() bool { return processState(job) == "Z" })
	if _, err := g.from.Discard(filler); err != nil {
		t.Fatal(err)
	}
	g.hears(fmt.Sprintf("status %d", int(syscall.SIGSTOP)<<8|0x7f))
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
		case <-time.After(patience):
			g.out.Close()
			g.cmd.Process.Kill() // makes hears fail
		}
	}()
	g.hears(fmt.Sprintf("status %d", int(syscall.SIGKILL)))
	close(ended)
}

// Holdfast learns of the end of the job from the guard, which is its parent.
func TestAGuardThatIsStoppedDoesNotStopHoldfast(t *testing.T) {
	s := newSite(t)
	p := s.hold("a")
	job := s.pid("held.a")
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", job))
	if err != nil {
		t.Fatal(err)
	}
	guard, err := strconv.Atoi(strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[1])
	if err != nil || guard == p.cmd.Process.Pid {
		t.Fatalf("the guard is not the parent of the job: %d, %v", guard, err)
	}
	if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.write("go", "")
	p.wantCode(0)
	if p.err.String() != "" {
		t.Errorf("stderr: %s", &p.err)
	}
	s.run("run", "-n", "a", "--", "true").wantCode(0) // released
}

// writesTo reports whether a thread of a process is in write(2) to a descriptor.
func writesTo(pid, fd int) bool {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, thread.Name()))
		if strings.HasPrefix(string(text), fmt.Sprintf("%d 0x%x ", unix.SYS_WRITE, fd)) {
			return true
		}
	}
	return false
}
