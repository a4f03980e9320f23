package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// programTime is how long the program of the README and the command may take.
const programTime = time.Minute

// check puts the release into a module proxy and uses it as users will: from empty folders,
// with only that proxy and the public ones.
func (r *release) check(ctx context.Context) error {
	step("%d modules into a module proxy", len(r.modules))
	if err := r.fillProxy(ctx); err != nil {
		return err
	}
	for _, m := range r.modules {
		if err := r.checkModule(ctx, m); err != nil {
			return fmt.Errorf("%s: %w", m.tag(r.version), err)
		}
	}
	text, err := os.ReadFile(filepath.Join(r.clone, "README.md"))
	if err != nil {
		return err
	}
	readme, err := parseReadme(string(text))
	if err != nil {
		return err
	}
	if err := r.checkInstallSection(ctx, readme); err != nil {
		return err
	}
	for _, m := range r.modules {
		if slices.Contains(readme.get, m.Path) {
			step("go get %s alone", m.Path)
			if err := r.useAlone(ctx, m); err != nil {
				return fmt.Errorf("a user of %s alone: %w", m.Path, err)
			}
		}
	}
	step("go get all of them together; the program of the README")
	if err := r.useTogether(ctx, readme); err != nil {
		return fmt.Errorf("a user of all modules: %w", err)
	}
	for _, pkg := range readme.install {
		step("go install %s", pkg)
		if err := r.useCommand(ctx, pkg); err != nil {
			return err
		}
	}
	return nil
}

// checkModule checks the go.mod and go.sum of a released module.
func (r *release) checkModule(ctx context.Context, m *module) error {
	mod, err := readGoMod(ctx, filepath.Join(r.proxyCache(), "cache", "download", filepath.FromSlash(m.Path), "@v", r.version+".mod"))
	if err != nil {
		return err
	}
	for _, replace := range mod.Replace {
		return fmt.Errorf("go.mod replaces %s: users do not see that, and go install refuses it", replace.Old.Path)
	}
	for _, require := range mod.Require {
		if r.isOurs(require.Path) && require.Version != r.version {
			return fmt.Errorf("go.mod requires %s at %s instead of %s", require.Path, require.Version, r.version)
		}
	}
	// Loading the packages compares go.sum with the proxy. That happens in the main module only.
	// So a wrong go.sum would not affect users of m, but it would affect people who clone the
	// release.
	_, _, err = r.packages(ctx, m)
	return err
}

// checkInstallSection returns an error if the README does not say how to get a module, or if it
// names something that is not released.
func (r *release) checkInstallSection(ctx context.Context, readme readme) error {
	var want readmeLines
	for _, m := range r.modules {
		libraries, commands, err := r.packages(ctx, m)
		if err != nil {
			return err
		}
		if len(libraries) > 0 {
			want = append(want, "go get "+m.Path)
		} else {
			for _, p := range commands {
				want = append(want, "go install "+p+"@latest")
			}
		}
	}
	var have readmeLines
	for _, p := range readme.get {
		have = append(have, "go get "+p)
	}
	for _, p := range readme.install {
		have = append(have, "go install "+p)
	}
	if missing := want.without(have); len(missing) > 0 {
		return fmt.Errorf("README.md: Install lacks these lines:\n%s", strings.Join(missing, "\n"))
	}
	if extra := have.without(want); len(extra) > 0 {
		return fmt.Errorf("README.md: Install has lines for what is not released:\n%s", strings.Join(extra, "\n"))
	}
	return nil
}

type readmeLines []string

func (a readmeLines) without(b readmeLines) readmeLines {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
}

// packages returns the packages of m that others can import, and its commands.
func (r *release) packages(ctx context.Context, m *module) (libraries, commands []string, err error) {
	c := command{dir: filepath.Join(r.clone, filepath.FromSlash(m.dir)), env: r.user()}
	lines, err := c.lines(ctx, "go", "list", "-mod=readonly", "-f", "{{.Name}} {{.ImportPath}}", "./...")
	for _, line := range lines {
		name, p, _ := strings.Cut(line, " ")
		switch {
		case slices.Contains(strings.Split(p, "/"), "internal"):
		case name == "main":
			commands = append(commands, p)
		default:
			libraries = append(libraries, p)
		}
	}
	return libraries, commands, err
}

// A user is the program of a user, in an empty folder outside of the clone.
type user struct{ command }

func (r *release) newUser(ctx context.Context) (user, error) {
	dir, err := os.MkdirTemp(r.temp, "user-")
	if err != nil {
		return user{}, err
	}
	u := user{command{dir: dir, env: r.user()}}
	_, err = u.run(ctx, "go", "mod", "init", "example.com/user")
	return u, err
}

// build writes a package that imports others, and builds it.
func (u user) build(ctx context.Context, imports []string) error {
	text := "package user\n"
	for _, p := range imports {
		text += fmt.Sprintf("\nimport _ %q\n", p)
	}
	if err := os.WriteFile(filepath.Join(u.dir, "user.go"), []byte(text), 0o644); err != nil {
		return err
	}
	if _, err := u.run(ctx, "go", "mod", "tidy"); err != nil {
		return err
	}
	_, err := u.run(ctx, "go", "build", "./...")
	return err
}

// useAlone gets m, imports all its packages, and checks that m adds no requirements of our other
// modules.
func (r *release) useAlone(ctx context.Context, m *module) error {
	u, err := r.newUser(ctx)
	if err != nil {
		return err
	}
	if _, err := u.run(ctx, "go", "get", m.Path); err != nil {
		return err
	}
	libraries, _, err := r.packages(ctx, m)
	if err != nil {
		return err
	}
	if err := u.build(ctx, libraries); err != nil {
		return err
	}
	all, err := u.lines(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Version}}", "all")
	if err != nil {
		return err
	}
	linked, err := u.lines(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	if err != nil {
		return err
	}
	graph, err := u.lines(ctx, "go", "mod", "graph")
	if err != nil {
		return err
	}
	for _, line := range all {
		p, version, _ := strings.Cut(line, " ")
		if r.isOurs(p) {
			if version != r.version {
				return fmt.Errorf("got %s at %s", p, version)
			}
			if !isWithin(m.Path, p) {
				return fmt.Errorf("it requires %s: a module may require only those in the folders above it", p)
			}
			continue
		}
		indirect := slices.ContainsFunc(m.mod.Require, func(q requirement) bool { return q.Path == p && q.Indirect }) // required by a library that its tests use
		if owner := r.ownerOf(p, m); owner != "" && !indirect && !slices.Contains(linked, p) && r.onlyWeRequire(p, graph) {
			return fmt.Errorf("it requires %s, which it does not use; that belongs to %s", p, owner)
		}
	}
	return nil
}

// ownerOf returns our module, other than m, that requires p directly.
func (r *release) ownerOf(p string, m *module) string {
	for _, other := range r.modules {
		if other != m && slices.ContainsFunc(other.mod.Require, func(q requirement) bool { return q.Path == p && !q.Indirect }) {
			return other.Path
		}
	}
	return ""
}

// onlyWeRequire reports whether, in the output of go mod graph, only the user and our modules
// require p.
func (r *release) onlyWeRequire(p string, graph []string) bool {
	for _, edge := range graph {
		from, to, _ := strings.Cut(edge, " ")
		from, _, _ = strings.Cut(from, "@")
		to, _, _ = strings.Cut(to, "@")
		if to == p && from != "example.com/user" && !r.isOurs(from) {
			return false
		}
	}
	return true
}

// useTogether gets all modules into one program, and runs the program of the README in it.
func (r *release) useTogether(ctx context.Context, readme readme) error {
	u, err := r.newUser(ctx)
	if err != nil {
		return err
	}
	for _, p := range readme.get {
		if _, err := u.run(ctx, "go", "get", p); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(u.dir, "main.go"), []byte(readme.program), 0o644); err != nil {
		return err
	}
	if _, err := u.run(ctx, "go", "build", "-o", "program", "."); err != nil {
		return err
	}
	out, err := u.runFor(ctx, filepath.Join(u.dir, "program"))
	if err != nil {
		return err
	}
	fmt.Println(out)
	if err := os.Remove(filepath.Join(u.dir, "main.go")); err != nil {
		return err
	}
	return u.build(ctx, readme.get)
}

// runFor is like run, but ends a program that takes too long.
func (c command) runFor(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, programTime, errors.New("it takes too long"))
	defer cancel()
	return c.run(ctx, name, args...)
}

// useCommand installs a command and checks the version that it prints.
func (r *release) useCommand(ctx context.Context, pkg string) error {
	bin := filepath.Join(r.temp, "bin")
	c := command{dir: r.temp, env: append(r.user(), "GOBIN="+bin)}
	if _, err := c.run(ctx, "go", "install", pkg); err != nil {
		return err
	}
	pkg, _, _ = strings.Cut(pkg, "@")
	out, err := c.runFor(ctx, filepath.Join(bin, path.Base(pkg)), "version")
	if err != nil {
		return err
	}
	fmt.Println(out)
	if !slices.Contains(strings.Fields(out), r.version) {
		return fmt.Errorf("%s version prints %q, without %s", path.Base(pkg), out, r.version)
	}
	return nil
}
