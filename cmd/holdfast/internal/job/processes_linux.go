package job

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of descendants whose own parent has ended, so
// that they can be found.
func adoptOrphans() bool {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}

// rename keeps killall(1) and pkill(1) of our name away from the guard.
func rename(name string) {
	os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// processes lists all processes that are not zombies.
func processes() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make([]process, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok && !p.zombie {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, os.ErrNotExist // no such file system here
	}
	return all, nil
}

// children lists the children of all threads of a process. Not every kernel can.
func children(pid int) ([]int, error) {
	tasks := "/proc/" + strconv.Itoa(pid) + "/task/"
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		list, err := os.ReadFile(tasks + e.Name() + "/children")
		if err != nil && e.Name() == strconv.Itoa(pid) {
			return nil, err
		}
		for _, field := range bytes.Fields(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// readProcess reads about one process. It knows no more than its number if that has ended.
func readProcess(pid int) (p process, ok bool) {
	p.pid = pid
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false // it has ended in the meantime
	}
	// PID (NAME) STATE PARENT GROUP …, where the name can be anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return p, false
	}
	p.zombie = bytes.ContainsAny(fields[0], "ZXx")
	p.parent, _ = strconv.Atoi(string(fields[1]))
	p.group, _ = strconv.Atoi(string(fields[2]))
	return p, true
}

// parentOf returns the parent of a process, 0 if it is not known.
func parentOf(pid int) int {
	p, _ := readProcess(pid)
	return p.parent
}

// executablePath is us, even if the file was replaced since we started.
func executablePath() (string, error) { return "/proc/self/exe", nil }
