//go:build unix

package job

import (
	"fmt"
	"slices"
	"syscall"
	"time"
)

// A family is a process group and, where the system can list them, all descendants of a root process.
type family struct {
	group int

	// root returns the process ID of the root process, and that of the guard if it is a descendant of
	// the root. The root is 0 if it is unknown or also has children outside the family.
	root func() (root, guard int)
}

func (f *family) signal(sig syscall.Signal) {
	others, _ := f.members() // first, since children of killed parents get another parent
	syscall.Kill(-f.group, sig)
	for _, p := range others {
		if p.group != f.group {
			syscall.Kill(p.pid, sig)
		}
	}
}

// alive reports whether a process of the family is still running. Zombies do not count.
func (f *family) alive() bool {
	if all, known := f.members(); known {
		return len(all) > 0
	}
	return syscall.Kill(-f.group, 0) == nil
}

// kill kills the family repeatedly until no process is left, or until the given time. A process
// that hangs in the kernel cannot be killed, and neither can a process of another user.
func (f *family) kill(until time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		f.signal(syscall.SIGKILL)
		if !f.alive() {
			if !f.alive() { // the list may have changed while it was read
				return nil
			}
		}
		if time.Now().After(until) {
			break
		}
		time.Sleep(pause)
	}
	left := "the process group of the job"
	if all, _ := f.members(); len(all) > 0 {
		left = fmt.Sprintf("process %d", all[0].pid)
	}
	return fmt.Errorf("%s cannot be killed: it hangs in the kernel, or belongs to another user", left)
}

type process struct {
	pid, parent, group int
	zombie             bool // it has ended
}

// members lists the processes of the family. Known is false if the system cannot list them.
func (f *family) members() (members []process, known bool) {
	root, guard := f.root()
	if root != 0 {
		if members, err := descendants(root, guard); err == nil {
			return members, true
		}
	}
	return f.pick(root, guard)
}

// descendants lists all descendants of a process except one. A process that ends while its entry
// is read is listed too. It may have started another process, which the next call finds as a
// child of the root.
func descendants(of, except int) ([]process, error) {
	pids, err := children(of)
	if err != nil {
		return nil, err
	}
	var members []process
	for _, pid := range pids {
		p, _ := readProcess(pid)
		if p.zombie || pid == except {
			continue
		}
		members = append(members, p)
		below, _ := descendants(pid, except)
		members = append(members, below...)
	}
	return members, nil
}

// pick finds the family in the list of all processes, without a root or a list of children.
func (f *family) pick(root, guard int) (members []process, known bool) {
	others, err := processes()
	if err != nil {
		return nil, false
	}
	inFamily := map[int]bool{root: root != 0}
	for found := -1; found < len(members); { // a child may be listed before its parent
		found = len(members)
		others = slices.DeleteFunc(others, func(p process) bool {
			if p.group != f.group && (p.pid == guard || !inFamily[p.parent]) {
				return false
			}
			inFamily[p.pid] = true
			members = append(members, p)
			return true
		})
	}
	return members, true
}
