package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

// A module is a released module of the repository. Require and Replace are from go mod edit -json.
type module struct {
	Path    string
	Require []struct{ Path string }
	Replace []struct{ Old struct{ Path string } }
	dir     string // relative to the repository, with slashes; "" for the root module
}

// tag returns the name of the git tag by which the Go command finds a version of m.
func (m *module) tag(version string) string { return path.Join(m.dir, version) }

var notReleased = regexp.MustCompile(`(?m)^// Not released`)

// releasedModules returns the released modules in repo, each after those that it requires: the root first.
func releasedModules(ctx context.Context, repo string) (modules []*module) {
	c := command{dir: repo, env: []string{"GOWORK="}}
	for _, line := range c.lines(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Dir}}") {
		name, dir, _ := strings.Cut(line, " ")
		file := filepath.Join(dir, "go.mod")
		if !notReleased.Match(must.Get(os.ReadFile(file))) {
			m := &module{Path: name}
			must.OK(json.Unmarshal([]byte(command{}.run(ctx, "go", "mod", "edit", "-json", file)), m))
			modules = append(modules, m)
		}
	}
	root := slices.MinFunc(modules, func(a, b *module) int { return len(a.Path) - len(b.Path) }).Path
	// A go.mod also lists indirect requirements, so a module has more of them than those it requires.
	ours := func(m *module) (n int) {
		for _, r := range m.Require {
			if isWithin(r.Path, root) {
				n++
			}
		}
		return n
	}
	for _, m := range modules {
		m.dir = strings.TrimPrefix(strings.TrimPrefix(m.Path, root), "/")
	}
	slices.SortFunc(modules, func(a, b *module) int { return cmp.Or(ours(a)-ours(b), strings.Compare(a.Path, b.Path)) })
	return modules
}

// isWithin reports whether module or package p is root or below it.
func isWithin(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// A command is a folder in which programs run, and what they have in addition to our environment.
type command struct {
	dir string
	env []string
}

// run runs a program and returns its standard output. The error of a failure has its whole output.
func (c command) run(ctx context.Context, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.dir
	// In a git hook, the hook's variables would make git use the hook's repository.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GIT_DIR=") || strings.HasPrefix(v, "GIT_INDEX_FILE=") || strings.HasPrefix(v, "GIT_WORK_TREE=")
	})
	cmd.Env = append(cmd.Env, c.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		must.Fail("in %s: %s %s: %w\n%s%s", cmp.Or(c.dir, "."), name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return strings.TrimRight(stdout.String(), "\n")
}

// lines is like run, and splits the output into lines.
func (c command) lines(ctx context.Context, name string, args ...string) []string {
	out := c.run(ctx, name, args...)
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}
