package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// check puts the release into a module proxy and uses it as users will: from empty folders,
// with only that proxy and the public ones.
func (r *release) check(ctx context.Context) {
	step("%d modules into a module proxy", len(r.modules))
	r.fillProxy(ctx)
	for _, m := range r.modules {
		within(m.tag(r.version), func() { r.checkModule(ctx, m) })
	}
	readme := parseReadme(string(value(os.ReadFile(filepath.Join(r.clone, "README.md")))))
	r.checkInstallSection(ctx, readme)
	for _, m := range r.modules {
		if slices.Contains(readme.get, m.Path) {
			step("go get %s alone", m.Path)
			within("a user of "+m.Path+" alone", func() { r.useAlone(ctx, m) })
		}
	}
	step("go get all of them together; the program of the README")
	within("a user of all modules", func() { r.useTogether(ctx, readme) })
	for _, pkg := range readme.install {
		step("go install %s", pkg)
		r.useCommand(ctx, pkg)
	}
}

// checkModule checks the go.mod and go.sum of a released module.
func (r *release) checkModule(ctx context.Context, m *module) {
	mod := readGoMod(ctx, filepath.Join(r.proxyCache(), "cache", "download", filepath.FromSlash(m.Path), "@v", r.version+".mod"))
	for _, replace := range mod.Replace {
		fail("go.mod replaces %s: users do not see that, and go install refuses it", replace.Old.Path)
	}
	for _, require := range mod.Require {
		if r.isOurs(require.Path) && require.Version != r.version {
			fail("go.mod requires %s at %s instead of %s", require.Path, require.Version, r.version)
		}
	}
	// Loading the packages compares go.sum with the proxy. That happens in the main module only.
	// So a wrong go.sum would not affect users of m, but it would affect people who clone the
	// release.
	r.packages(ctx, m)
}

// checkInstallSection fails if the README does not say how to get a module, or if it names something
// that is not released.
func (r *release) checkInstallSection(ctx context.Context, readme readme) {
	var want readmeLines
	for _, m := range r.modules {
		libraries, commands := r.packages(ctx, m)
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
		fail("README.md: Install lacks these lines:\n%s", strings.Join(missing, "\n"))
	}
	if extra := have.without(want); len(extra) > 0 {
		fail("README.md: Install has lines for what is not released:\n%s", strings.Join(extra, "\n"))
	}
}

type readmeLines []string

func (a readmeLines) without(b readmeLines) readmeLines {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
}

// packages returns the packages of m that others can import, and its commands.
func (r *release) packages(ctx context.Context, m *module) (libraries, commands []string) {
	c := command{dir: filepath.Join(r.clone, filepath.FromSlash(m.dir)), env: r.user()}
	for _, line := range c.lines(ctx, "go", "list", "-mod=readonly", "-f", "{{.Name}} {{.ImportPath}}", "./...") {
		name, p, _ := strings.Cut(line, " ")
		switch {
		case slices.Contains(strings.Split(p, "/"), "internal"):
		case name == "main":
			commands = append(commands, p)
		default:
			libraries = append(libraries, p)
		}
	}
	return libraries, commands
}

// A user is the program of a user, in an empty folder outside of the clone.
type user struct{ command }

func (r *release) newUser(ctx context.Context) user {
	u := user{command{dir: value(os.MkdirTemp(r.temp, "user-")), env: r.user()}}
	u.run(ctx, "go", "mod", "init", "example.com/user")
	return u
}

// build writes a package that imports others, and builds it.
func (u user) build(ctx context.Context, imports []string) {
	text := "package user\n"
	for _, p := range imports {
		text += fmt.Sprintf("\nimport _ %q\n", p)
	}
	ok(os.WriteFile(filepath.Join(u.dir, "user.go"), []byte(text), 0o644))
	u.run(ctx, "go", "mod", "tidy")
	u.run(ctx, "go", "build", "./...")
}

// useAlone gets m, imports all its packages, and checks that m adds no requirements of our other
// modules.
func (r *release) useAlone(ctx context.Context, m *module) {
	u := r.newUser(ctx)
	u.run(ctx, "go", "get", m.Path)
	libraries, _ := r.packages(ctx, m)
	u.build(ctx, libraries)
	linked := u.lines(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	graph := u.lines(ctx, "go", "mod", "graph")
	for _, line := range u.lines(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Version}}", "all") {
		p, version, _ := strings.Cut(line, " ")
		if r.isOurs(p) {
			if version != r.version {
				fail("got %s at %s", p, version)
			}
			if !isWithin(m.Path, p) {
				fail("it requires %s: a module may require only those in the folders above it", p)
			}
			continue
		}
		indirect := slices.ContainsFunc(m.mod.Require, func(q requirement) bool { return q.Path == p && q.Indirect }) // required by a library that its tests use
		if owner := r.ownerOf(p, m); owner != "" && !indirect && !slices.Contains(linked, p) && r.onlyWeRequire(p, graph) {
			fail("it requires %s, which it does not use; that belongs to %s", p, owner)
		}
	}
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
func (r *release) useTogether(ctx context.Context, readme readme) {
	u := r.newUser(ctx)
	for _, p := range readme.get {
		u.run(ctx, "go", "get", p)
	}
	ok(os.WriteFile(filepath.Join(u.dir, "main.go"), []byte(readme.program), 0o644))
	u.run(ctx, "go", "build", "-o", "program", ".")
	fmt.Println(u.runFor(ctx, filepath.Join(u.dir, "program")))
	ok(os.Remove(filepath.Join(u.dir, "main.go")))
	u.build(ctx, readme.get)
}

// useCommand installs a command and checks the version that it prints.
func (r *release) useCommand(ctx context.Context, pkg string) {
	bin := filepath.Join(r.temp, "bin")
	c := command{dir: r.temp, env: append(r.user(), "GOBIN="+bin)}
	c.run(ctx, "go", "install", pkg)
	pkg, _, _ = strings.Cut(pkg, "@")
	out := c.runFor(ctx, filepath.Join(bin, path.Base(pkg)), "version")
	fmt.Println(out)
	if !slices.Contains(strings.Fields(out), r.version) {
		fail("%s version prints %q, without %s", path.Base(pkg), out, r.version)
	}
}
