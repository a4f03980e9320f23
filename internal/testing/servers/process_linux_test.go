package servers_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// victim is the environment variable that is set in the test binary that will be killed.
const victim = "HOLDFAST_TEST_VICTIM"

func TestKilledTestBinaryLeavesNoServer(t *testing.T) {
	if os.Getenv(victim) != "" {
		fmt.Println("server", servers.StartRedis(t, servers.RedisOptions{}).PID())
		select {} // until it is killed
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m", "-test.v")
	cmd.Env = append(os.Environ(), victim+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "server "); ok {
			pid, _ = strconv.Atoi(text)
		}
	}
	if pid == 0 || !alive(pid) {
		t.Fatalf("no server was started; its process is %d", pid)
	}
	defer func() {
		if t.Failed() && alive(pid) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}()
	cmd.Process.Kill()
	servers.Poll(t, 10*time.Second, func() error {
		if alive(pid) {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}

// alive reports whether a process runs. A zombie does not count.
func alive(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}
