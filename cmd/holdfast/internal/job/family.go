//go:build unix

package job

import (
	"fmt"
	"syscall"
	"time"
)

// A family is a process group and, where the system can tell, all descendants of a root.
type family struct {
	group int

	// root returns the root, 0 if it is not known or has other children, and the guard, if
	// that is a descendant of the root. It is nil for the group alone.
	root func() (root, guard int)
}

func (f *family) roots() (root, guard int) {
	if f.root == nil {
		return 0, 0
	}
	return f.root()
}

// signal sends a signal to all of the family.
func (f *family) signal(sig syscall.Signal) {
	others, _ := f.members() // first: killing parents cuts the ties
	syscall.Kill(-f.group, sig)
	for _, p := range others {
		if p.group != f.group {
			syscall.Kill(p.pid, sig)
		}
	}
}

// alive reports whether anyone of the family still runs. Zombies do not.
func (f *family) alive() bool {
	if all, known := f.members(); known {
		return len(all) > 0
	}
	return syscall.Kill(-f.group, 0) == nil
}

// kill kills until nobody is left. It gives up at a time: a process that hangs in the
// kernel cannot be killed, nor can another user's.
func (f *family) kill(until time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		f.signal(syscall.SIGKILL)
		alive := f.alive()
		if !alive {
			alive = f.alive() // a list that changes while it is read may lack somebody
		}
		if !alive {
			return nil
		}
		if time.Now().After(until) {
			break
		}
		time.Sleep(pause)
	}
	left := "the group"
	if all, _ := f.members(); len(all) > 0 {
		left = fmt.Sprintf("process %d", all[0].pid)
	}
	return fmt.Errorf("%s could not be killed: it hangs in the kernel or belongs to another user", left)
}

// A process is one line of the list of processes.
type process struct {
	pid, parent, group int
	zombie             bool // it has ended, and has no children
}

// members lists the family.
func (f *family) members() (members []process, known bool) {
	root, guard := f.roots()
	if root != 0 {
		if members, err := descendants(root, guard); err == nil {
			return members, true
		}
	}
	return f.pick(root, guard)
}

// descendants lists all below a process but one. A process that ends while it is looked at
// is listed: it may have made another, which is found next time as a child of the root.
func descendants(of, but int) ([]process, error) {
	pids, err := children(of)
	if err != nil {
		return nil, err
	}
	var members []process
	for _, pid := range pids {
		p, _ := readProcess(pid)
		if p.zombie || pid == but {
			continue
		}
		members = append(members, p)
		below, _ := descendants(pid, but)
		members = append(members, below...)
	}
	return members, nil
}

// pick picks the family out of all processes. It is for systems without a list of children,
// and for a group whose root is gone.
func (f *family) pick(root, guard int) (members []process, known bool) {
	all, err := processes()
	if err != nil {
		return nil, false
	}
	children := make(map[int][]process)
	for _, p := range all {
		if p.pid != guard {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	seen := make(map[int]bool)
	var walk func(ps []process)
	walk = func(ps []process) {
		for _, p := range ps {
			if seen[p.pid] {
				continue
			}
			seen[p.pid] = true
			members = append(members, p)
			walk(children[p.pid])
		}
	}
	if root != 0 {
		walk(children[root])
	}
	for _, p := range all {
		if p.group == f.group {
			walk([]process{p})
		}
	}
	return members, true
}
