package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

// check puts the release into a module proxy and uses it as users will, from empty folders.
func (r *release) check(ctx context.Context) {
	step("%d modules into a module proxy", len(r.modules))
	r.fillProxy(ctx)
	readme := string(must.Get(os.ReadFile(filepath.Join(r.clone, "README.md"))))
	var got []*module
	for _, m := range r.modules {
		libraries, commands := r.packages(ctx, m)
		if len(libraries) > 0 {
			step("go get %s alone", m.Path)
			mentions(readme, "go get "+m.Path)
			r.useAlone(ctx, m, libraries)
			got = append(got, m)
			continue
		}
		for _, pkg := range commands {
			step("go install %s@latest", pkg)
			mentions(readme, "go install "+pkg+"@latest")
			r.useCommand(ctx, pkg)
		}
	}
	step("go get all of them together; the program of the README")
	c := r.newUser(ctx, "main.go", programOf(readme), got...)
	c.run(ctx, "go", "build", "-o", "program", ".")
	fmt.Println(c.run(ctx, filepath.Join(c.dir, "program")))
}

// mentions fails if the README does not say how to get a module.
func mentions(readme, line string) {
	if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `\s*(#.*)?$`).MatchString(readme) {
		must.Fail("README.md lacks the line: %s", line)
	}
}

// programOf returns the first complete program of the README.
func programOf(readme string) string {
	_, program, ok := strings.Cut(readme, "\n```go\npackage main\n")
	program, _, closed := strings.Cut(program, "\n```\n")
	if !ok || !closed {
		must.Fail("README.md: no code block with a complete program (package main)")
	}
	return "package main\n" + program + "\n"
}

// packages returns the importable packages of m and its commands. It fails if go.sum differs from the proxy.
func (r *release) packages(ctx context.Context, m *module) (libraries, commands []string) {
	c := command{dir: r.dir(m), env: r.user()}
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

// newUser returns the program of a user, in an empty folder outside of the clone.
func (r *release) newUser(ctx context.Context, file, text string, modules ...*module) command {
	c := command{dir: must.Get(os.MkdirTemp(r.temp, "user-")), env: r.user()}
	c.run(ctx, "go", "mod", "init", "example.com/user")
	must.OK(os.WriteFile(filepath.Join(c.dir, file), []byte(text), 0o644))
	for _, m := range modules {
		c.run(ctx, "go", "get", m.Path)
	}
	return c
}

// useAlone gets m, imports all its packages, and checks that m adds no requirements of our others.
func (r *release) useAlone(ctx context.Context, m *module, libraries []string) {
	text := "package user\n"
	for _, p := range libraries {
		text += fmt.Sprintf("\nimport _ %q\n", p)
	}
	c := r.newUser(ctx, "user.go", text, m)
	c.run(ctx, "go", "mod", "tidy")
	c.run(ctx, "go", "build", "./...")
	for _, line := range c.lines(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Version}}", "all") {
		p, version, _ := strings.Cut(line, " ")
		switch {
		case !r.isOurs(p):
		case version != r.version:
			must.Fail("a user of %s got %s at %s", m.Path, p, version)
		case !isWithin(m.Path, p):
			must.Fail("%s requires %s: a module may require only those in the folders above it", m.Path, p)
		}
	}
}

// useCommand installs a command and checks the version that it prints.
func (r *release) useCommand(ctx context.Context, pkg string) {
	bin := filepath.Join(r.temp, "bin")
	c := command{dir: r.temp, env: append(r.user(), "GOBIN="+bin)}
	c.run(ctx, "go", "install", pkg+"@"+r.version)
	out := c.run(ctx, filepath.Join(bin, path.Base(pkg)), "version")
	fmt.Println(out)
	if !slices.Contains(strings.Fields(out), r.version) {
		must.Fail("%s version prints %q, without %s", path.Base(pkg), out, r.version)
	}
}
