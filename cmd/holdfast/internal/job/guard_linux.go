package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// startJob starts the process that becomes the job, with the standard files, directory and
// environment of the guard. It reads the command from holdfast: if the command were in the
// arguments of the guard, pkill -f would find the guard too.
func (g *guardProcess) startJob(gate, report int) error {
	line, err := g.in.ReadString('\n')
	if err != nil {
		return err
	}
	var size int
	if _, err := fmt.Sscanf(line, "start %d\n", &size); err != nil {
		return err
	}
	command := make([]byte, size)
	if _, err := io.ReadFull(g.in, command); err != nil {
		return err
	}
	adoptOrphans()
	self, err := executablePath()
	if err != nil {
		return err
	}
	attr := jobAttr()
	attr.Env = os.Environ()
	args := execArgs(strconv.Itoa(gate), strconv.Itoa(report), strings.Split(string(command), "\x00"))
	if g.group, _, err = syscall.StartProcess(self, args, attr); err != nil {
		return err
	}
	syscall.Close(gate)
	syscall.Close(report)
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil { // so that only the job has the standard files
		unix.Dup3(int(null.Fd()), 0, 0)
		unix.Dup3(int(null.Fd()), 1, 0)
		null.Close()
	}
	fmt.Fprintf(g.out, "job %d\n", g.group)
	go g.reap()
	return nil
}

// reap waits for all children, which are the job and adopted orphans, and reports changes of
// the job to holdfast. It reports them before it reaps the job: if the guard is killed in
// between, holdfast becomes the parent of the job and can read its status.
func (g *guardProcess) reap() {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return // no child is left
		}
		pid, status := childStatus(&info)
		if pid == g.group {
			fmt.Fprintf(g.out, "status %d\n", uint32(status))
		}
		// Consume only the kind of change that was reported. A stopped job may have been
		// killed since, and its end must be reported too.
		change := unix.WEXITED
		if status.Stopped() {
			change = unix.WSTOPPED
		}
		unix.Waitid(unix.P_PID, pid, nil, change|unix.WNOHANG, nil)
	}
}

// childStatus decodes the result of Waitid. The part of the structure that depends on the
// signal follows three numbers and is aligned like a pointer.
func childStatus(info *unix.Siginfo) (pid int, status syscall.WaitStatus) {
	const align = unsafe.Sizeof(uintptr(0))
	child := (*struct{ pid, uid, status int32 })(unsafe.Add(unsafe.Pointer(info), (12+align-1)/align*align))
	const exited, dumped, stopped = 1, 3, 5 // CLD_ constants
	n := uint32(child.status)
	switch info.Code {
	case exited:
		n <<= 8
	case dumped:
		n |= 0x80
	case stopped:
		n = n<<8 | 0x7f
	}
	return int(child.pid), syscall.WaitStatus(n)
}
