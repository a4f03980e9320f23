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

// A bareGuard is a guard process with the test in the place of holdfast.
type bareGuard struct {
	t    *testing.T
	cmd  *exec.Cmd
	to   *os.File
	from *bufio.Reader
	out  *os.File // its own end of from
}

// startGuard starts a guard that inherits the files behind its two pipes, as 5 and up.
func startGuard(t *testing.T, part, arg3, arg4 string, files ...*os.File) *bareGuard {
	t.Helper()
	in, to, err1 := os.Pipe()
	from, out, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	g := &bareGuard{t: t, to: to, from: bufio.NewReader(from), out: out}
	g.cmd = exec.Command(command, part, "3", "4", arg3, arg4, "mute")
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

// killIn tells the guard when to kill the job.
func (g *bareGuard) killIn(d time.Duration) {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	fmt.Fprintf(g.to, "kill at %d\n", ts.Nano()+int64(d))
}

func (g *bareGuard) hears(want string) {
	g.t.Helper()
	if line, err := g.from.ReadString('\n'); err != nil || line != want+"\n" {
		g.t.Fatalf("the guard said %q, %v; want %q", line, err, want)
	}
}

// processState is the letter that ps(1) shows.
func processState(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) == 0 {
		return ""
	}
	return fields[0]
}

// If it is stopped for longer than the TTL, what holdfast sent meanwhile counts.
func TestAGuardThatWasStoppedReadsWhatWasSentMeanwhile(t *testing.T) {
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
		time.Sleep(150 * time.Millisecond) // its timer is over
		g.killIn(time.Minute)
		g.to.WriteString("done\n")
		syscall.Kill(pid, syscall.SIGCONT)
		if err := g.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if job.Process.Signal(syscall.Signal(0)) != nil || processState(job.Process.Pid) == "Z" {
			t.Fatal("the guard killed the job, though it was told in time not to")
		}
	}
}

// The kernel keeps one change of a child only. Here the job is killed after the guard has
// seen that it is stopped, and before the guard has taken that note away.
func TestTheGuardTellsTheEndOfAJobThatIsKilledWhileItIsStopped(t *testing.T) {
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

	// A pipe that is full holds the guard where it tells about the job.
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
	until(t, "the guard tells that the job is stopped", func() bool { return writesTo(g.cmd.Process.Pid, 4) })
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
			g.cmd.Process.Kill() // hears fails then
		}
	}()
	g.hears(fmt.Sprintf("status %d", int(syscall.SIGKILL)))
	close(ended)
}

// writesTo reports whether a thread of a process is inside write(2) to a descriptor.
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
