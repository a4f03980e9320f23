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
	root  int        // 0 if it is not known or has other children: then the group is the root
	not   func() int // a descendant of the root that does not belong: the guard; may be nil
}

// signal sends a signal to all of the family.
func (f *family) signal(sig syscall.Signal) {
	others, _, _ := f.members() // first: killing parents cuts the ties
	syscall.Kill(-f.group, sig)
	for _, p := range others {
		if p.group != f.group {
			syscall.Kill(p.pid, sig)
		}
	}
}

// looks is how often nobody has to be found while processes come and go. One that makes
// another and ends, again and again, is missed by many a look at the list.
const looks = 20

// alive reports whether anyone of the family still runs. Zombies do not.
func (f *family) alive() bool {
	for range looks {
		all, sure, err := f.members()
		switch {
		case err != nil:
			return syscall.Kill(-f.group, 0) == nil
		case len(all) > 0:
			return true
		case sure:
			return false
		}
	}
	return false
}

// kill kills until nobody is left. It gives up at a time: a process that hangs in the
// kernel cannot be killed, nor can another user's.
func (f *family) kill(until time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		f.signal(syscall.SIGKILL)
		if !f.alive() {
			return nil
		}
		if time.Now().After(until) {
			break
		}
		time.Sleep(pause)
	}
	left := "the group"
	if all, _, _ := f.members(); len(all) > 0 {
		left = fmt.Sprintf("process %d", all[0].pid)
	}
	return fmt.Errorf("%s could not be killed: it hangs in the kernel or belongs to another user", left)
}

// A process is one line of the list of processes.
type process struct {
	pid, parent, group int
	zombie             bool
}

// members picks the family out of all processes. It is not sure that these are all if some
// ended while it looked: what they made meanwhile is not among them.
func (f *family) members() (members []process, sure bool, err error) {
	all, sure, err := processes()
	if err != nil {
		return nil, false, err
	}
	not := 0
	if f.not != nil {
		not = f.not()
	}
	children := make(map[int][]process)
	for _, p := range all {
		if p.pid != not {
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
			if p.zombie {
				sure = false
				continue
			}
			members = append(members, p)
			walk(children[p.pid])
		}
	}
	if f.root != 0 {
		walk(children[f.root])
	}
	for _, p := range all {
		if p.group == f.group {
			walk([]process{p})
		}
	}
	return members, sure, nil
}
