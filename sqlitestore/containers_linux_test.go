package sqlitestore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// inNamespaces makes a child run under unshare(1) with these options, after a shell command that
// sets up its namespaces.
func inNamespaces(setUp string, options ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		args := append([]string{"unshare"}, options...)
		args = append(args, "sh", "-c", setUp+` && exec "$0" "$@"`, cmd.Path)
		cmd.Args = append(args, cmd.Args[1:]...)
		cmd.Path, cmd.Err = exec.LookPath("unshare")
	}
}

// LXC and systemd-nspawn give each container its own boot ID, or a time namespace.
func TestContainersOfOneKernelExcludeEachOther(t *testing.T) {
	dir := t.TempDir()
	bootID := filepath.Join(dir, "boot_id")
	must(t, os.WriteFile(bootID, []byte("11111111-2222-4333-8444-555555555555\n"), 0o600))
	const target = "/proc/sys/kernel/random/boot_id"
	ownBootID := "mount --bind " + bootID + " " + target + " && cmp -s " + bootID + " " + target
	for what, change := range map[string]func(*exec.Cmd){
		"another boot id":           inNamespaces(ownBootID, "--mount"),
		"a later clock":             inNamespaces("true", "--time", "--monotonic", "3600", "--fork", "--kill-child"),
		"an earlier clock":          inNamespaces("true", "--time", "--monotonic", "-100", "--fork", "--kill-child"),
		"another boot id and clock": inNamespaces(ownBootID, "--mount", "--time", "--monotonic", "-50", "--fork", "--kill-child"),
	} {
		t.Run(what, func(t *testing.T) {
			probe := exec.Command("true")
			if change(probe); probe.Run() != nil {
				t.Log("not tested: namespaces need root; the other tests of boot IDs set their own clocks")
				return
			}
			path, s := newFile(t)
			outside := take(t, s, "outside")
			inside := startAs(t, "hold", change, path, "inside")
			inside.hears("held")
			waiter := startAs(t, "queue", change, path, "outside")
			waiter.hears("queued 1") // not granted, because the earlier grant is still held
			again := open(t, path)   // under the boot ID outside of the container
			refused(t, again, request("inside"))
			extended(t, s, renewal(outside))
			release(t, s, outside)
			waiter.hears("served")
		})
	}
}
