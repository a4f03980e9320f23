package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// startJob starts the process that becomes the job, with our standard files, directory and
// environment. It reads the command from holdfast: in our own arguments, pkill -f of the
// command would find the guard as well.
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
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil { // the job's files are its own
		unix.Dup3(int(null.Fd()), 0, 0)
		unix.Dup3(int(null.Fd()), 1, 0)
		null.Close()
	}
	fmt.Fprintf(g.out, "job %d\n", g.group)
	go g.reap()
	return nil
}

// reap waits for all children, the job and adopted orphans, and tells holdfast about the
// job.
func (g *guardProcess) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return // no child is left
		case pid == g.group:
			fmt.Fprintf(g.out, "status %d\n", uint32(status))
		}
	}
}
