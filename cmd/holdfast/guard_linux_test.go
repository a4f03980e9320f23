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

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

// A bareGuard is a guard process whose other end is the test instead of holdfast.
type bareGuard struct {
	t    *testing.T
	cmd  *exec.Cmd
	to   *os.File
	from *bufio.Reader
	err  suites.Text
}

// startGuard starts a guard of a process group. Root is 0, or the process whose children belong to the
// job.
func startGuard(t *testing.T, group, root int) *bareGuard {
	t.Helper()
	in, to, err1 := os.Pipe()
	from, out, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	g := &bareGuard{t: t, to: to, from: bufio.NewReader(from)}
	g.cmd = exec.Command(command, "__guard", "3", "4", strconv.Itoa(group), strconv.Itoa(root), strconv.Itoa(int(10*time.Second)), "false")
	g.cmd.Stderr = &g.err
	g.cmd.ExtraFiles = []*os.File{in, out}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	t.Cleanup(func() {
		g.cmd.Process.Kill()
		g.cmd.Wait()
		to.Close()
		from.Close()
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

// processState returns the state of a process as ps(1) shows it, and its parent.
func processState(pid int) (state string, parent int) {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fmt.Sscan(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), &state, &parent)
	return state, parent
}

// startSleep starts a process in a group of its own, which ends with the test.
func startSleep(t *testing.T) *exec.Cmd {
	t.Helper()
	job := exec.Command("sleep", "60")
	job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		job.Process.Kill()
		job.Wait()
	})
	return job
}

func TestAGuardThatWasStoppedReadsAllMessagesBeforeItActs(t *testing.T) {
	t.Parallel()
	for range 5 {
		job := startSleep(t)
		g := startGuard(t, job.Process.Pid, 0)
		g.killIn(time.Minute)
		g.hears("ready")
		g.killIn(100 * time.Millisecond)
		pid := g.cmd.Process.Pid
		syscall.Kill(pid, syscall.SIGSTOP)
		until(t, "the guard is stopped", func() bool { state, _ := processState(pid); return state == "T" })
		time.Sleep(150 * time.Millisecond) // until the kill time of the last message has passed
		g.killIn(time.Minute)
		g.to.WriteString("done\n")
		syscall.Kill(pid, syscall.SIGCONT)
		if err := g.cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if dead(job.Process.Pid) {
			t.Fatal("the guard killed the job in spite of a later message")
		}
	}
}

// If the machine or the cgroup of holdfast was frozen, the guard acts when the time has long passed.
func TestAGuardSaysIfItKilledTheJobTooLate(t *testing.T) {
	t.Parallel()
	for in, want := range map[time.Duration]string{
		50 * time.Millisecond: "the job was killed before another holder could acquire the lock",
		-time.Minute:          "the job was killed late: another holder may have had the lock",
	} {
		job := startSleep(t)
		g := startGuard(t, job.Process.Pid, 0)
		g.killIn(in)
		if err := g.cmd.Wait(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(g.err.String(), want) {
			t.Errorf("kill in %v: stderr of the guard: %q, want %q", in, &g.err, want)
		}
		job.Wait()
	}
}

func TestAGuardThatIsStoppedDoesNotStopHoldfast(t *testing.T) {
	s := newSite(t)
	p := s.hold("a")
	if err := syscall.Kill(s.guardOf(p), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.write("go", "")
	p.wantCode(0)
	if p.err.String() != "" {
		t.Errorf("stderr: %s", &p.err)
	}
	s.run("run", "-n", "a", "--", "true").wantCode(0) // released
}
