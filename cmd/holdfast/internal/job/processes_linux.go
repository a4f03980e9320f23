package job

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of orphaned descendants, so that it can find them.
func adoptOrphans() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// rename changes the name of the guard's process, so that killall(1) and pkill(1) do not find the
// guard when they look for holdfast.
func rename(name string) {
	os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// processes lists all processes that are not zombies.
func processes() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := make([]process, 0, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok && !p.zombie {
			all = append(all, p)
		}
	}
	return all, nil
}

// children lists the children of all threads of a process. Not all kernels support this.
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

// readProcess reads the entry of one process. If it has ended, only its process ID is set.
func readProcess(pid int) (p process, ok bool) {
	p.pid = pid
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false // it has ended
	}
	// The format is PID (NAME) STATE PARENT GROUP ..., and the name may contain parentheses.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return p, false
	}
	p.zombie = bytes.ContainsAny(fields[0], "ZXx")
	p.parent, _ = strconv.Atoi(string(fields[1]))
	p.group, _ = strconv.Atoi(string(fields[2]))
	return p, true
}

// executablePath returns a path that works even if the file of this program was replaced.
func executablePath() (string, error) { return "/proc/self/exe", nil }
