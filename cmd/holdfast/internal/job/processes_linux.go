package job

import (
	"bytes"
	"os"
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
		if p, alive := readProcess(pid); alive {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, os.ErrNotExist // no such file system here
	}
	return all, nil
}

// readProcess reads about one process.
func readProcess(pid int) (p process, alive bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false // it has ended in the meantime
	}
	// PID (NAME) STATE PARENT GROUP …, where the name can be anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 || bytes.ContainsAny(fields[0], "ZXx") {
		return p, false
	}
	p.pid = pid
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
