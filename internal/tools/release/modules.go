package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

func readGoMod(ctx context.Context, file string) (goMod, error) {
	var mod goMod
	out, err := command{}.run(ctx, "go", "mod", "edit", "-json", file)
	if err != nil {
		return mod, err
	}
	return mod, json.Unmarshal([]byte(out), &mod)
}

var notReleased = regexp.MustCompile(`(?m)^// Not released`)

// releasedModules returns the released modules of the workspace in repo. Every module comes
// after those that it requires, so the root module is the first.
func releasedModules(ctx context.Context, repo string) ([]*module, error) {
	out, err := command{dir: repo, env: []string{"GOWORK="}}.run(ctx, "go", "list", "-m", "-json")
	if err != nil {
		return nil, err
	}
	var modules []*module
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var listed struct{ Path, Dir string }
		if err := d.Decode(&listed); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		file := filepath.Join(listed.Dir, "go.mod")
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if notReleased.Match(bytes.ReplaceAll(text, []byte("\r"), nil)) {
			continue
		}
		mod, err := readGoMod(ctx, file)
		if err != nil {
			return nil, err
		}
		modules = append(modules, &module{Path: listed.Path, mod: mod})
	}
	return inOrder(modules)
}

// inOrder sorts modules so that each comes after those that it requires, and sets their
// folders from their paths.
func inOrder(modules []*module) ([]*module, error) {
	slices.SortFunc(modules, func(a, b *module) int { return strings.Compare(a.Path, b.Path) })
	if len(modules) == 0 {
		return nil, errors.New("no released module in the workspace")
	}
	root := modules[0].Path
	var sorted []*module
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
			return nil, fmt.Errorf("%s and others require each other, or a module that is not released", firstNot(done, modules))
		}
	}
	return sorted, nil
}

func firstNot(done map[string]bool, modules []*module) string {
	i := slices.IndexFunc(modules, func(m *module) bool { return !done[m.Path] })
	return modules[i].Path
}

// isWithin reports whether module or package p is root or below it.
func isWithin(p, root string) bool {
	return p == root || strings.HasPrefix(p, root+"/")
}
