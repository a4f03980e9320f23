//go:build unix

package servers

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// serverUser returns the user for PostgreSQL, which refuses to run as root, or nil for the current one.
func serverUser(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatalf("PostgreSQL does not run as root, and there is no user postgres: %v", err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func serverAttributes(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	attr := childAttributes()
	attr.Credential = serverUser(t)
	return attr
}

// giveToServer makes the server's user the owner of a file.
func giveToServer(t testing.TB, path string) {
	t.Helper()
	if c := serverUser(t); c != nil {
		must(t, os.Chown(path, int(c.Uid), int(c.Gid)))
	}
}

// signalPostgres sends a signal to the server, and to its children, each of which has its own process group.
func signalPostgres(p *os.Process, sig syscall.Signal) error {
	if sig == syscall.SIGKILL {
		signalGroup(p, syscall.SIGSTOP) // no new children
	}
	for _, pid := range childrenOf(p.Pid) {
		syscall.Kill(pid, sig)
	}
	// The server cannot start again while one of them has its shared memory.
	for deadline := time.Now().Add(exitLimit); sig == syscall.SIGKILL && len(childrenOf(p.Pid)) > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	return signalGroup(p, sig)
}

// childrenOf lists the children of a process that have not ended. It finds them only on systems with /proc.
func childrenOf(parent int) (pids []int) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, _ := strconv.Atoi(filepath.Base(folder))
		if state, ppid := stateOf(pid); ppid == parent && state != 'Z' {
			pids = append(pids, pid)
		}
	}
	return pids
}
