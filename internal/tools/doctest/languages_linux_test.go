package doctest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pageOfLanguages is the page with a program in each language.
const pageOfLanguages = "docs/other-languages.md"

// programIn returns the program in a language; in sh, that of pageOfLanguages with some text.
func programIn(t *testing.T, lang, contains string) *block {
	t.Helper()
	if _, err := exec.LookPath(interpreters[lang][0]); err != nil {
		t.Skipf("%v; make deps installs it", err)
	}
	found := slices.DeleteFunc(blocks(t, lang), func(b *block) bool {
		return lang == "sh" && (b.page != pageOfLanguages || !strings.Contains(b.text, contains)) // other commands are run by another test
	})
	if len(found) != 1 {
		t.Fatalf("%d programs in %s are tested here, want 1: %v", len(found), lang, found)
	}
	return found[0]
}

// replace replaces a part of a program that must be there once.
func replace(t *testing.T, text, part, by string) string {
	t.Helper()
	if strings.Count(text, part) != 1 {
		t.Fatalf("%q is not in the program once", part)
	}
	return strings.Replace(text, part, by, 1)
}

// Each program holds its lock for longer than the TTL, and ends when its renewals fail.
func TestProgramsHoldTheirLockUntilTheyEndOrItIsLost(t *testing.T) {
	s := newShell(t)
	t.Run("sh", func(t *testing.T) { aScriptEndsBetweenTwoStepsIfItsLockIsLost(t, s) })
	for lang, program := range map[string]struct{ work, long string }{
		"python": {`    print("charging, with token", lock.token)`, `    print(lock.token, flush=True); time.sleep(60); print("too late")`},
		"js":     {`  console.log("charging, with token", token);`, `  console.log(token); await new Promise((done) => setTimeout(done, 60000)); console.log("too late");`},
	} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			b := programIn(t, lang, "")
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			home, bin := t.TempDir(), t.TempDir()
			list := func() string {
				t.Helper()
				out, err := s.command(ctx, home, filepath.Join(s.bin, "built"), "ls", "--names").Output()
				must(t, err)
				return string(out)
			}
			whole := s.command(ctx, home, append(slices.Clone(interpreters[lang]), b.text)...)
			if out, err := whole.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "charging, with token ") {
				t.Fatalf("%v: %v\n%s", b, err, out)
			}
			if left := list(); left != "" {
				t.Errorf("the lock was not released: %s", left)
			}

			text := replace(t, replace(t, b.text, program.work, program.long), "TTL = 30", "TTL = 6")
			const ttl = 6 * time.Second
			cmd := s.command(ctx, home, append(slices.Clone(interpreters[lang]), text)...)
			cmd.Env = append(cmd.Env, "PATH="+bin+":"+s.bin+":"+os.Getenv("PATH"))
			cmd.Stderr = t.Output()
			stdout, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			output := bufio.NewScanner(stdout)
			if !output.Scan() {
				t.Fatal("the program does not start to work")
			}
			time.Sleep(ttl + time.Second)
			if list() == "" {
				t.Fatal("no holder after the TTL")
			}
			// From here on the first renewal fails, and the second one hangs.
			const stub = "#!/bin/sh\n[ -e failed ] && exec tail -f /dev/null\ntouch failed\nexit 69\n"
			must(t, os.WriteFile(filepath.Join(bin, "stub"), []byte(stub), 0o755))
			must(t, os.Rename(filepath.Join(bin, "stub"), filepath.Join(bin, "holdfast")))
			begin := time.Now()
			if output.Scan() {
				t.Errorf("it works without the lock: %s", output.Text())
			}
			err = cmd.Wait()
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // a renewal that hangs
			if d := time.Since(begin); cmd.ProcessState.ExitCode() != 79 || d > ttl {
				t.Errorf("it ended with %v after %v, want 79", err, d)
			}
		})
	}
}

func aScriptEndsBetweenTwoStepsIfItsLockIsLost(t *testing.T, s *shell) {
	t.Parallel()
	b := programIn(t, "sh", "holdfast renew")
	home := t.TempDir()
	for name, text := range map[string]string{
		"migrate": `holdfast break "$HOLDFAST_NAME" --id "$HOLDFAST_ID"`,
		"restart": "touch restarted",
	} {
		must(t, os.WriteFile(filepath.Join(home, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	cmd := s.command(t.Context(), home, "sh", "-c", b.text) // as POSIX defines it, and not as bash does
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 79 {
		t.Errorf("it ended with %v, want 79\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(home, "restarted")); err == nil {
		t.Error("the second step ran without the lock")
	}
}
