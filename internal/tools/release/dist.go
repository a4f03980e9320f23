package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

var platforms = []string{
	"darwin/amd64", "darwin/arm64",
	"linux/amd64", "linux/arm64",
	"windows/amd64", "windows/arm64",
}

// shells are the shells with completions, each with the name of the file in which it looks for them.
var shells = map[string]string{"bash": "%s.bash", "fish": "%s.fish", "powershell": "%s.ps1", "zsh": "_%s"}

// dist writes an archive of every command for each platform, and SHA256SUMS, into dir.
func dist(ctx context.Context, repo, version, dir string) {
	dir = must.Get(filepath.Abs(dir))
	must.OK(os.MkdirAll(dir, 0o755))
	withRelease(ctx, repo, version, func(r *release) {
		if r.git(ctx, "tag", "--list", version) == "" {
			step("there is no tag %s: a preview, from the working tree", version)
			r.commitWorkingTree(ctx)
			r.build(ctx)
		} else {
			r.git(ctx, "checkout", "-q", version)
			r.modules = releasedModules(ctx, r.clone)
		}
		r.fillProxy(ctx)
		sums := ""
		for _, m := range r.modules {
			if libraries, commands := r.packages(ctx, m); len(libraries) == 0 {
				for _, pkg := range commands {
					sums += r.pack(ctx, m, pkg, dir)
				}
			}
		}
		must.OK(os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums), 0o644))
	})
}

// pack builds a command for all platforms, writes the archives into dir, and returns their checksums.
func (r *release) pack(ctx context.Context, m *module, pkg, dir string) (sums string) {
	name := path.Base(pkg)
	common := r.commonFiles(ctx, m, pkg)
	for _, platform := range platforms {
		step("build %s for %s", name, platform)
		base := fmt.Sprintf("%s_%s_%s", name, strings.TrimPrefix(r.version, "v"), strings.ReplaceAll(platform, "/", "_"))
		folder := filepath.Join(r.temp, base)
		must.OK(os.CopyFS(folder, os.DirFS(common)))
		r.compile(ctx, m, pkg, platform, folder)
		if strings.HasPrefix(platform, "windows/") {
			base += ".zip"
		} else {
			base += ".tar.gz"
		}
		out := filepath.Join(dir, base)
		r.archive(ctx, folder, out)
		data := must.Get(os.ReadFile(out))
		fmt.Printf("%6.1f MB  %s\n", float64(len(data))/1e6, base)
		sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(data), base)
	}
	return sums
}

// archive archives a folder. Git gives all files the time of their commit, so the bytes are reproducible.
func (r *release) archive(ctx context.Context, folder, out string) {
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "--force", "."},
		{"commit", "-q", "--no-verify", "--no-gpg-sign", "-m", r.version},
		{"archive", "-9", "--prefix=" + filepath.Base(folder) + "/", "--output=" + out, "HEAD"},
	} {
		r.git(ctx, append([]string{"-C", folder, "-c", "core.autocrlf=false", "-c", "tar.umask=022"}, args...)...)
	}
}

// compile builds pkg into a folder and returns the path of the program, which knows its version and commit.
func (r *release) compile(ctx context.Context, m *module, pkg, platform, folder string) string {
	goos, goarch, _ := strings.Cut(platform, "/")
	out := filepath.Join(folder, path.Base(pkg))
	if goos == "windows" {
		out += ".exe"
	}
	c := command{dir: r.dir(m), env: append(r.user(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)}
	c.run(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", out, pkg)
	return out
}

// commonFiles returns a folder with the files of all archives: documents, manual pages and completions.
// The pages show the date of the commit, because with the current date they would not be reproducible.
func (r *release) commonFiles(ctx context.Context, m *module, pkg string) (folder string) {
	name := path.Base(pkg)
	folder = filepath.Join(r.temp, "common", name)
	program := r.compile(ctx, m, pkg, runtime.GOOS+"/"+runtime.GOARCH, filepath.Join(r.temp, "bin"))
	c := command{dir: r.temp, env: []string{"SOURCE_DATE_EPOCH=" + r.git(ctx, "log", "-1", "--format=%ct")}}
	must.OK(os.MkdirAll(filepath.Join(folder, "completions"), 0o755))
	c.run(ctx, program, "man", filepath.Join(folder, "man"))
	for shell, pattern := range shells {
		script := c.run(ctx, program, "completion", shell)
		must.OK(os.WriteFile(filepath.Join(folder, "completions", fmt.Sprintf(pattern, name)), []byte(script+"\n"), 0o644))
	}
	for _, document := range []string{"CHANGELOG.md", "LICENSE", "README.md"} {
		must.OK(os.WriteFile(filepath.Join(folder, document), must.Get(os.ReadFile(filepath.Join(r.clone, document))), 0o644))
	}
	return folder
}
