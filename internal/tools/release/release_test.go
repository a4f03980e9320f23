package main

import (
	"archive/zip"
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

const lib = "github.com/example/lib"

// repository is a minimal repository of the same structure as ours: a root module, two stores
// that each have a client library, a command, and a module that is not released.
var repository = map[string]string{
	"go.work":      "go 1.25.0\n\nuse (\n\t.\n\t./astore\n\t./bstore\n\t./cmd/lib\n\t./bench\n)\n",
	"go.mod":       "module " + lib + "\n\ngo 1.25.0\n",
	"lib.go":       "package lib\n",
	"LICENSE":      "Free.\n",
	"CHANGELOG.md": "# Changelog\n\n## [0.1.0]\n",
	"README.md": "## Install\n\n```sh\ngo get " + lib + "\ngo get " + lib + "/astore # A\ngo get " + lib + "/bstore\n```\n\n" +
		"```sh\ngo install " + lib + "/cmd/lib@latest\n```\n\n## Use\n\n" +
		"```go\npackage main\n\nimport _ \"" + lib + "/astore\"\n\nfunc main() {}\n```\n",

	"astore/go.mod":  goModOf("astore", "example.com/aclient v1.0.0"),
	"astore/a.go":    "package astore\n\nimport (\n\t_ \"example.com/aclient\"\n\t_ \"" + lib + "\"\n)\n",
	"bstore/go.mod":  goModOf("bstore", "example.com/bclient v1.0.0"),
	"bstore/b.go":    "package bstore\n\nimport (\n\t_ \"example.com/bclient\"\n\t_ \"" + lib + "\"\n)\n",
	"bench/go.mod":   "// Not released: nobody imports it.\n" + goModOf("bench"),
	"bench/b.go":     "package bench\n\nimport _ \"" + lib + "\"\n",
	"cmd/lib/go.mod": goModOf("cmd/lib", lib+"/astore v0.0.0", lib+"/bstore v0.0.0", "example.com/aclient v1.0.0 // indirect", "example.com/bclient v1.0.0 // indirect"),
	"cmd/lib/main.go": `package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	_ "` + lib + `/astore"
	_ "` + lib + `/bstore"
)

func main() {
	switch os.Args[1] {
	case "version":
		info, _ := debug.ReadBuildInfo()
		fmt.Print("lib ", info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				fmt.Print(" ", s.Value)
			}
		}
	case "completion":
		fmt.Println("complete", os.Args[2])
	case "man":
		if os.MkdirAll(os.Args[2], 0o755) != nil || os.WriteFile(filepath.Join(os.Args[2], "lib.1"), []byte(os.Getenv("SOURCE_DATE_EPOCH")), 0o644) != nil {
			os.Exit(1)
		}
	}
}
`,
}

// goModOf returns the go.mod of a module in dir, as it is in the repository: with replace
// directives for its siblings.
func goModOf(dir string, requires ...string) string {
	up := strings.Repeat("../", strings.Count(dir, "/")+1)
	text := "module " + lib + "/" + dir + "\n\ngo 1.25.0\n\nrequire " + lib + " v0.0.0\n\nreplace " + lib + " => " + up + "\n"
	for _, r := range requires {
		text += "\nrequire " + r + "\n"
		if p, _, _ := strings.Cut(r, " "); strings.HasPrefix(p, lib) {
			text += "\nreplace " + p + " => " + up + strings.TrimPrefix(p, lib+"/") + "\n"
		}
	}
	return text
}

// commitRepository creates a git repository with the files of repository, except for changes:
// files with another text, or with an empty text, which are omitted. It returns its folder.
func commitRepository(t *testing.T, changes map[string]string) string {
	t.Helper()
	files := maps.Clone(repository)
	maps.Copy(files, changes)
	dir := t.TempDir()
	for name, text := range files {
		if text != "" {
			write(filepath.Join(dir, filepath.FromSlash(name)), text)
		}
	}
	t.Setenv("GOPROXY", proxyOf(clientLibraries(t)))
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	git(t, dir, "init", "-q")
	git(t, dir, "add", ".")
	git(t, dir, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-qm", "First")
	return dir
}

// clientLibraries returns a module cache with the client libraries, which serves as a proxy.
func clientLibraries(t *testing.T) string {
	t.Helper()
	cache := t.TempDir()
	for _, name := range []string{"aclient", "bclient"} {
		path := "example.com/" + name
		v := filepath.Join(cache, "cache", "download", path, "@v")
		mod := "module " + path + "\n\ngo 1.25.0\n"
		write(filepath.Join(v, "list"), "v1.0.0\n")
		write(filepath.Join(v, "v1.0.0.info"), `{"Version": "v1.0.0"}`)
		write(filepath.Join(v, "v1.0.0.mod"), mod)
		var archive bytes.Buffer
		w := zip.NewWriter(&archive)
		for file, text := range map[string]string{"go.mod": mod, name + ".go": "package " + name + "\n"} {
			must.Get(io.WriteString(must.Get(w.Create(path+"@v1.0.0/"+file)), text))
		}
		must.OK(w.Close())
		write(filepath.Join(v, "v1.0.0.zip"), archive.String())
	}
	return cache
}

func write(name, text string) {
	must.OK(os.MkdirAll(filepath.Dir(name), 0o755))
	must.OK(os.WriteFile(name, []byte(text), 0o644))
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return command{dir: dir}.run(t.Context(), "git", args...)
}

func mustFail(t *testing.T, f func(), text string) {
	t.Helper()
	if err := must.Try(f); err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got error %v, want one with %q", err, text)
	}
}

func TestUsersCanGetEveryModuleOfAReleaseFromAShallowClone(t *testing.T) {
	dir := commitRepository(t, nil)
	git(t, dir, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "Second")
	shallow := filepath.Join(t.TempDir(), "shallow")
	git(t, dir, "clone", "-q", "--depth=1", "file://"+filepath.ToSlash(dir), shallow)
	checkWorkingTree(t.Context(), shallow)
}

func TestTheCheckReleasesUncommittedChanges(t *testing.T) {
	dir := commitRepository(t, nil)
	write(filepath.Join(dir, "new.go"), "package other\n")
	mustFail(t, func() { checkWorkingTree(t.Context(), dir) }, "found packages lib (lib.go) and other (new.go)")
	if status := git(t, dir, "status", "--porcelain"); status != "?? new.go" {
		t.Errorf("the check changed the repository: git status prints %q", status)
	}
}

func TestTheCheckFindsAReleaseThatUsersCannotUse(t *testing.T) {
	for name, test := range map[string]struct {
		file, old, new string
		want           string
	}{
		"a command with a replace directive":               {"cmd/lib/go.mod", "go 1.25.0\n", "go 1.25.0\n\nreplace " + lib + " => ../../\n", "directives"},
		"a requirement that is not released":               {"astore/go.mod", lib + " v0.1.0", lib + " v0.0.0", "missing go.sum entry"},
		"a hash in go.sum that is not that of the sibling": {"astore/go.sum", "example.com/aclient v1.0.0 h1:", lib + " v0.1.0 h1:", "checksum mismatch"},
		"a go.sum without the siblings":                    {"astore/go.sum", lib, "example.com/other", "missing go.sum entry"},
		"a README without a module":                        {"README.md", "go get " + lib + "/bstore\n", "", "lacks the line: go get " + lib + "/bstore"},
		"a README without the command":                     {"README.md", "go install", "go get", "lacks the line: go install " + lib + "/cmd/lib@latest"},
		"a README without a program":                       {"README.md", "package main", "package other", "no code block with a complete program"},
		"a program that does not build":                    {"README.md", "func main() {}", "func main() { x }", "undefined: x"},
		"a program that fails":                             {"README.md", "func main() {}", "func main() { panic(1) }", "panic: 1"},
	} {
		t.Run(name, func(t *testing.T) {
			changes := make(map[string]string)
			if text, ok := repository[test.file]; ok && test.file == "README.md" {
				changes[test.file] = strings.Replace(text, test.old, test.new, 1)
			}
			r := newRelease(t.Context(), commitRepository(t, changes), t.TempDir(), "v0.1.0")
			r.build(t.Context())
			if len(changes) == 0 { // a mistake of the release itself
				path := filepath.Join(r.clone, filepath.FromSlash(test.file))
				text := string(must.Get(os.ReadFile(path)))
				write(path, strings.ReplaceAll(text, test.old, test.new))
				r.commitAndTag(t.Context(), r.modules...)
			}
			mustFail(t, func() { r.check(t.Context()) }, test.want)
		})
	}
}

func TestTheCheckFindsAModuleThatRequiresAnother(t *testing.T) {
	dir := commitRepository(t, map[string]string{
		"astore/go.mod": goModOf("astore", "example.com/aclient v1.0.0", lib+"/bstore v0.0.0", "example.com/bclient v1.0.0 // indirect"),
		"astore/b.go":   "package astore\n\nimport _ \"" + lib + "/bstore\"\n",
	})
	mustFail(t, func() { checkWorkingTree(t.Context(), dir) }, lib+"/astore requires "+lib+"/bstore")
}

func TestTagPutsOneTagPerModuleOnOneCommitBesideTheBranch(t *testing.T) {
	dir := commitRepository(t, nil)
	t.Setenv("GIT_COMMITTER_NAME", "A")
	t.Setenv("GIT_COMMITTER_EMAIL", "a@example.com")
	head := git(t, dir, "rev-parse", "HEAD")

	tag(t.Context(), dir, "v0.1.0")
	want := "astore/v0.1.0\nbstore/v0.1.0\ncmd/lib/v0.1.0\nv0.1.0"
	if tags := git(t, dir, "tag"); tags != want {
		t.Errorf("tags are\n%s\nwant\n%s", tags, want)
	}
	if now := git(t, dir, "rev-parse", "HEAD"); now != head {
		t.Errorf("the branch moved from %s to %s", head, now)
	}
	commits := make(map[string]bool)
	for name := range strings.SplitSeq(want, "\n") {
		commits[git(t, dir, "rev-parse", name+"^{commit}")] = true
	}
	if len(commits) != 1 || git(t, dir, "rev-parse", "v0.1.0^") != head {
		t.Errorf("the tags are at %v, want one commit on top of %s", slices.Collect(maps.Keys(commits)), head)
	}

	mustFail(t, func() { tag(t.Context(), dir, "v0.1.0") }, "a published version can never change")
}

func TestTagRefusesAStateThatIsNotReady(t *testing.T) {
	dir := commitRepository(t, nil)
	mustFail(t, func() { tag(t.Context(), dir, "v0.2.0") }, `CHANGELOG.md has no section "## [0.2.0]"`)
	for _, version := range []string{"0.1.0", "v0.1", "v01.0.0", "v0.1.0+meta", "latest"} {
		mustFail(t, func() { checkVersionSyntax(version) }, "must look like v0.1.0")
	}
	write(filepath.Join(dir, "new.go"), "package lib\n")
	mustFail(t, func() { tag(t.Context(), dir, "v0.1.0") }, "commit your changes first")
}

func TestDistIsReproducibleAndKnowsItsVersion(t *testing.T) {
	dir := commitRepository(t, nil)
	all := platforms
	platforms = []string{runtime.GOOS + "/" + runtime.GOARCH}
	t.Cleanup(func() { platforms = all })

	first, second := t.TempDir(), t.TempDir()
	dist(t.Context(), dir, "v0.1.0", first) // a preview
	r := newRelease(t.Context(), dir, t.TempDir(), "v0.1.0")
	r.build(t.Context())
	git(t, r.clone, "checkout", "-q", "--detach", "v0.1.0") // as in the release workflow
	dist(t.Context(), r.clone, "v0.1.0", second)
	sums := must.Get(os.ReadFile(filepath.Join(first, "SHA256SUMS")))
	if again := must.Get(os.ReadFile(filepath.Join(second, "SHA256SUMS"))); string(sums) != string(again) {
		t.Errorf("two builds differ:\n%s%s", sums, again)
	}
	if runtime.GOOS == "windows" {
		return // no tar
	}
	_, archive, _ := strings.Cut(strings.TrimSpace(string(sums)), "  ")
	command{dir: first}.run(t.Context(), "tar", "xzf", archive, "--strip-components=1")
	out := command{dir: first}.run(t.Context(), "./lib", "version")
	if want := "lib v0.1.0 " + git(t, r.clone, "rev-parse", "v0.1.0^{commit}"); out != want {
		t.Errorf("the packed command says %q, want %q", out, want)
	}
	date := must.Get(os.ReadFile(filepath.Join(first, "man/lib.1")))
	if want := git(t, r.clone, "log", "-1", "--format=%ct", "v0.1.0"); string(date) != want {
		t.Errorf("the date of the manual page is %q, want that of the commit, %s", date, want)
	}
	for _, name := range []string{"LICENSE", "README.md", "completions/_lib", "completions/lib.bash"} {
		if _, err := os.Stat(filepath.Join(first, name)); err != nil {
			t.Error(err)
		}
	}
}
