package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A module is a released module of the repository.
type module struct {
	Path string
	dir  string // relative to the repository, with slashes; "" for the root module
	mod  goMod
}

// tag returns the name of the git tag by which the Go command finds a version of m.
func (m *module) tag(version string) string {
	return path.Join(m.dir, version)
}

// goMod is the part of the output of go mod edit -json that a release needs.
type goMod struct {
	Module  struct{ Path string }
	Require []requirement
	Replace []struct{ Old struct{ Path string } }
}

type requirement struct {
	Path, Version string
	Indirect      bool
}

func readGoMod(ctx context.Context, file string) (mod goMod) {
	ok(json.Unmarshal([]byte(command{}.run(ctx, "go", "mod", "edit", "-json", file)), &mod))
	return mod
}

var notReleased = regexp.MustCompile(`(?m)^// Not released`)

// releasedModules returns the released modules of the workspace in repo. Every module comes
// after those that it requires, so the root module is the first.
func releasedModules(ctx context.Context, repo string) (modules []*module) {
	for _, dir := range (command{dir: repo, env: []string{"GOWORK="}}).lines(ctx, "go", "list", "-m", "-f", "{{.Dir}}") {
		file := filepath.Join(dir, "go.mod")
		text := value(os.ReadFile(file))
		if notReleased.Match(bytes.ReplaceAll(text, []byte("\r"), nil)) {
			continue
		}
		mod := readGoMod(ctx, file)
		modules = append(modules, &module{Path: mod.Module.Path, mod: mod})
	}
	return inOrder(modules)
}

// inOrder sorts modules so that each comes after those that it requires, and sets their
// folders from their paths.
func inOrder(modules []*module) (sorted []*module) {
	slices.SortFunc(modules, func(a, b *module) int { return strings.Compare(a.Path, b.Path) })
	if len(modules) == 0 {
		fail("no released module in the workspace")
	}
	root := modules[0].Path
	done := make(map[string]bool)
	for len(sorted) < len(modules) {
		n := len(sorted)
		for _, m := range modules {
			ready := !slices.ContainsFunc(m.mod.Require, func(r requirement) bool {
				return isWithin(r.Path, root) && !done[r.Path]
			})
			if ready && !done[m.Path] {
				m.dir = strings.TrimPrefix(strings.TrimPrefix(m.Path, root), "/")
				sorted, done[m.Path] = append(sorted, m), true
			}
		}
		if len(sorted) == n {
			stuck := slices.IndexFunc(modules, func(m *module) bool { return !done[m.Path] })
			fail("%s and others require each other, or a module that is not released", modules[stuck].Path)
		}
	}
	return sorted
}

// isWithin reports whether module or package p is root or below it.
func isWithin(p, root string) bool {
	return p == root || strings.HasPrefix(p, root+"/")
}
