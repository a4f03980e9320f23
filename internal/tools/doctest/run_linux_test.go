package doctest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// wrappers replace commands in the PATH of a block. HOLDFAST is the built command.
var wrappers = map[string]string{
	// Some commands run until they are interrupted, which happens as soon as they print something.
	"holdfast": `case " $* " in
*" watch "* | *" ui "*)
	out=$(mktemp -p "$HOME")
	while [ ! -s "$out" ] && kill -0 $$; do SLEEP 0.05; done && kill -INT $$ &
	exec HOLDFAST "$@" >"$out" ;;
*" doctor "*) # 1 stands for warnings, such as that the server was started a moment ago
	HOLDFAST "$@" || [ $? = 1 ]
	exit ;;
esac
exec HOLDFAST "$@"`,

	// The built command replaces go run. A page must not run any other program with go, except
	// a program of its reader.
	"go": `case "$1 $2" in
"run ./cmd/holdfast")
	shift 2
	exec holdfast "$@" ;;
"mod init" | "work init") exec GO "$@" ;;
"run .") exec GO list -deps . ;; # finds all packages; to compile SQLite once more takes a minute
esac
echo "go $*: use norun" >&2
exit 1`,

	// Only check that the targets exist, because their recipes take minutes.
	"make": `exec MAKE --dry-run "$@" >/dev/null`,

	"sleep": `exec SLEEP 0.2`,
}

// patience is how long a block may take. Only a block that hangs takes that long.
const patience = time.Minute

// A shell runs blocks.
type shell struct {
	bin   string            // folder with the wrappers
	ports map[string]string // maps addresses in the pages to those of servers
}

func newShell(t *testing.T) *shell {
	t.Helper()
	if signal.Ignored(os.Interrupt) { // the shell that started the test in the background ignores it, and commands would too
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	s := &shell{bin: t.TempDir()}
	holdfast := filepath.Join(s.bin, "built")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", holdfast, "./cmd/holdfast")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	replace := []string{"HOLDFAST", holdfast}
	for _, name := range []string{"go", "make", "sleep"} {
		path, err := exec.LookPath(name)
		must(t, err)
		replace = append(replace, strings.ToUpper(name), path)
	}
	for name, text := range wrappers {
		text = "#!/bin/sh\n" + strings.NewReplacer(replace...).Replace(text) + "\n"
		must(t, os.WriteFile(filepath.Join(s.bin, name), []byte(text), 0o755))
	}
	return s
}

// startServers starts the servers that blocks mention.
func (s *shell) startServers(t *testing.T, all []*block) {
	t.Helper()
	text := ""
	for _, b := range all {
		if b.norun == "" {
			text += b.text
		}
	}
	s.ports = make(map[string]string)
	for usual, start := range map[string]func() string{
		"127.0.0.1:6379":            func() string { return servers.StartRedis(t, servers.RedisOptions{}).Addr() },
		"127.0.0.1:2379":            func() string { return servers.StartEtcd(t, servers.EtcdOptions{}).Addr() },
		"postgres://127.0.0.1/shop": func() string { return servers.StartPostgres(t, servers.PostgresOptions{}).URL() },
	} {
		if strings.Contains(text, usual) {
			s.ports[usual] = start()
		}
	}
}

var (
	inRepository = regexp.MustCompile(`(^|\s)(make|\./(cmd|examples|bench|internal))\b`)
	localScript  = regexp.MustCompile(`(?:^|\s)\./([\w.-]+)`)
)

// interpreters run the text of a block, which is their last argument.
var interpreters = map[string][]string{
	"sh":     {"bash", "--norc", "-euxo", "pipefail", "-c"},
	"python": {"python3", "-c"},
	"js":     {"node", "-e"},
}

// run runs a block in an empty folder with the scripts that the block calls, or in the repository
// if the block uses the repository.
func (s *shell) run(t *testing.T, b *block) error {
	t.Helper()
	home := t.TempDir()
	folder := home
	if inRepository.MatchString(b.text) {
		folder = root
	} else {
		for _, m := range localScript.FindAllStringSubmatch(b.text, -1) {
			must(t, os.WriteFile(filepath.Join(folder, m[1]), []byte("#!/bin/sh\necho "+m[1]+" runs\n"), 0o755))
		}
	}
	if strings.Contains(b.text, "cd my-program") {
		makeProgram(t, home)
	}
	text := b.text
	for usual, addr := range s.ports {
		text = strings.ReplaceAll(text, usual, addr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := s.command(ctx, home, append(slices.Clone(interpreters[b.lang]), text)...)
	cmd.Dir = folder
	cmd.Env = append(cmd.Env, goEnv(t)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", b, err, out)
	}
	return nil
}

// makeProgram makes a module with the program of the README, and a clone beside it.
func makeProgram(t *testing.T, folder string) {
	t.Helper()
	clone, err := filepath.Abs(root)
	must(t, err)
	must(t, os.Symlink(clone, filepath.Join(folder, "holdfast")))
	program := filepath.Join(folder, "my-program")
	must(t, os.Mkdir(program, 0o755))
	var code string
	for _, b := range blocks(t, "go") {
		if b.page == "README.md" && strings.HasPrefix(b.text, "package main\n") {
			code = b.text
		}
	}
	must(t, os.WriteFile(filepath.Join(program, "main.go"), []byte(code), 0o644))
}

// goEnv returns the folders of the go command, which it derives from HOME otherwise.
func goEnv(t *testing.T) []string {
	t.Helper()
	names := []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS", "GOSUMDB", "GONOSUMDB"}
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"env"}, names...)...).Output()
	must(t, err)
	values := strings.Split(string(out), "\n")
	var env []string
	for i, name := range names {
		env = append(env, name+"="+values[i])
	}
	return env
}

// command returns a command for a user whose locks are in the folder home.
func (s *shell) command(ctx context.Context, home string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + s.bin + ":" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + home}
	return cmd
}

func TestCommandsOfThePagesRun(t *testing.T) {
	all := blocks(t, "sh")
	s := newShell(t)
	s.startServers(t, all)
	ran := 0
	for _, b := range all {
		if b.norun != "" {
			t.Logf("%v is not run: %s", b, b.norun)
			continue
		}
		ran++
		if err := s.run(t, b); err != nil {
			t.Error(err)
		}
	}
	if ran < 4 {
		t.Errorf("only %d of %d blocks are run", ran, len(all))
	}
}

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
