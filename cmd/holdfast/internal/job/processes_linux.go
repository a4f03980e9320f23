package job

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes us the parent of what the job leaves behind, so that it can be found.
func adoptOrphans() {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// rename keeps killall(1) and pkill(1) of our name away from the guard.
func rename(name string) {
	os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// processes lists all processes. Whole is false if one had ended when it was its turn.
func processes() (all []process, whole bool, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, false, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, false, err
	}
	all, whole = make([]process, 0, len(names)), true
	for _, name := range slices.Backward(names) { // the youngest first: they are the quickest to go
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		} else {
			whole = false
		}
	}
	if len(all) == 0 {
		return nil, false, os.ErrNotExist // no such file system here
	}
	return all, whole, nil
}

// readProcess reads about one process.
func readProcess(pid int) (p process, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false // it has ended in the meantime
	}
	// PID (NAME) STATE PARENT GROUP …, where the name can be anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return p, false
	}
	p.pid, p.zombie = pid, bytes.ContainsAny(fields[0], "ZXx")
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
